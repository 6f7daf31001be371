"""Wrong arguments of items."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tf_placer
from tests.conformance.wrong_arguments.row import Row, Told
from tests.conformance.wrong_arguments.scene import Scene, step
from tf_placer.graph.program import Program

_COUNT = (0, -1, 1.5, "a", True)


def _split(item: tf_placer.Item) -> Row:
    return Row(
        tf_placer.split,
        lambda: {"item": item, "parts": 2, "batch_statistics": "whole", "kept_whole": ()},
        {
            "item": (3, "a", step),
            "parts": (*_COUNT, 10**6),
            "batch_statistics": (3, "", "parts"),
            "kept_whole": (3, "a", ["a"], item.index.names),
        },
    )


def of_items(scene: Scene) -> dict[str, Row]:
    item = scene.item
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=item.graph_def)
    program = Program(item.graph_def, item.feeds, item.fetches, item.control_outputs, item.variables)
    return {
        "split": _split(item),
        "Item.from_function": Row(
            tf_placer.Item.from_function,
            lambda: {"fn": step, "example_args": scene.examples, "name": "step"},
            {"fn": (None, 3, "step"), "example_args": ((), *no_examples(scene)), "name": (3, "")},
        ),
        "Item.from_saved_model": Row(
            tf_placer.Item.from_saved_model,
            lambda: {
                "path": scene.model,
                "signature": "serving_default",
                "batch_size": 2,
                "name": "m",
                "input_shapes": {},
                "tags": ("serve",),
            },
            {
                "path": (3, "", b"a", Told(scene.folder, "saved_model.pb")),
                "signature": (3, "", "train"),
                "batch_size": _COUNT,
                "name": (3, ""),
                **WRONG_READING,
            },
        ),
        "Item.from_meta_graph": Row(
            tf_placer.Item.from_meta_graph,
            lambda: {
                "meta_graph": meta_graph,
                "fetches": list(item.fetches),
                "name": "m",
                "batch_size": 2,
                "input_shapes": {},
            },
            {
                "meta_graph": (item.graph_def, b"", "path"),
                "fetches": ((), 3, "a", [3], Told(["nowhere"], "nowhere")),
                "name": (3, ""),
                "batch_size": _COUNT,
                "input_shapes": WRONG_READING["input_shapes"],
            },
        ),
        "Item.with_variables": Row(
            item.with_variables, lambda: {"values": {}}, {"values": (3, [3], {3: np.ones(2)})}
        ),
        "Item.with_constants": Row(item.with_constants, lambda: {"values": {}}, {"values": (3, [3])}),
        "Item.from_program": Row(
            tf_placer.Item.from_program,
            lambda: {"name": "p", "program": program},
            {"name": (3, ""), "program": (item,)},
        ),
    }


# What a file that is read lacks.
WRONG_READING = {
    "input_shapes": (
        3,
        "x",
        [3],
        {3: [3]},
        {"x": 3},
        {"x": "3"},
        {"x": [0]},
        Told({"nowhere": [3]}, "nowhere"),
    ),
    "tags": (3, "serve", [3], Told(["train"], "train"), Told((), "tagged")),
}


def no_examples(scene: Scene) -> tuple[tuple, ...]:
    """What ``step`` cannot be traced or placed with."""
    return (
        (3, 4),
        (None, None),
        ("a", "b"),
        scene.examples[:1],
        scene.examples * 2,
        (tf.ones((2, 3)), tf.ones((2, 3))),
        (tf.TensorSpec([2, None]), tf.TensorSpec([3, 2])),
        (tf.TensorSpec(None), tf.TensorSpec([3, 2])),
        (tf.RaggedTensorSpec([2, None]), tf.TensorSpec([3, 2])),
        (np.array([object()]), tf.TensorSpec([3, 2])),
    )
