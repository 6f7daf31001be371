"""Exports SavedModels of several kinds with placements over logical devices, and prints what differs, as JSON.

A process of its own: TensorFlow fixes its logical devices when its first op runs. Its argument is a folder to write in.
"""

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES, report
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.saved_model import read_saved_model
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.saved_model import PLAN_FILE, export_saved_model


def exported(source: pathlib.Path, signature: str = "serving_default", seed: int = 0) -> pathlib.Path:
    """A copy with a random placement of one signature."""
    item = Item.from_saved_model(source, signature)
    problem = analytic_problem(item, Cluster.logical(NUM_DEVICES))
    row = np.random.default_rng(seed).integers(NUM_DEVICES, size=problem.num_units)
    target = source.with_name(f"{source.name}_placed")
    placement = Placement(problem, row)
    export_saved_model(source, target, placement, signature)
    graph_def = read_saved_model(target).meta_graph.graph_def
    bodies = [node for function in graph_def.library.function for node in function.node_def]
    found = {node.device for node in [*graph_def.node, *bodies]} & {d.name for d in problem.cluster.devices}
    assert len(found) > 1, "nothing was placed"
    assert (target / PLAN_FILE).read_text() == placement.to_json()
    return target


def served(path: pathlib.Path, signature: str, **inputs: np.ndarray) -> dict[str, bytes]:
    options = tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
    model = tf.saved_model.load(str(path), options=options)
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    return {key: value.numpy().tobytes() for key, value in model.signatures[signature](**tensors).items()}


def served_by_v1(path: pathlib.Path, signature: str, **inputs: np.ndarray) -> dict[str, bytes]:
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    config.device_count["CPU"] = NUM_DEVICES
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        entry = meta.signature_def[signature]
        feeds = {entry.inputs[name].name: value for name, value in inputs.items()}
        results = session.run({key: output.name for key, output in entry.outputs.items()}, feeds)
    return {key: np.asarray(value).tobytes() for key, value in results.items()}


def same_answers(source: pathlib.Path, target: pathlib.Path, signature: str, **inputs: np.ndarray) -> bool:
    expected = served(source, signature, **inputs)
    answers = [served(target, signature, **inputs), served_by_v1(target, signature, **inputs)]
    return all(answer == expected for answer in answers) and bool(expected)


def keras_model(folder: pathlib.Path) -> bool:
    keras.utils.set_random_seed(3)
    layers = [keras.Input((6, 6, 3), name="image"), keras.layers.Conv2D(4, 3, activation="relu")]
    layers += [keras.layers.BatchNormalization(), keras.layers.Flatten(), keras.layers.Dense(5)]
    model = keras.Sequential(layers)
    source = folder / "keras"
    model.export(str(source), verbose=False)
    (name,) = read_saved_model(source).signature("serving_default").inputs
    target = exported(source)
    x = np.random.default_rng(0).normal(size=(3, 6, 6, 3)).astype(np.float32)
    loaded = tf.saved_model.load(
        str(target), options=tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
    )
    moved = {variable.device for variable in loaded._all_variables}  # what its signatures use
    return same_answers(source, target, "serving_default", **{name: x}) and len(moved) > 1


class TwoSignatures(tf.Module):
    """A module with a counter, a loop and two signatures."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
        self.calls = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def power(self, x):
        self.calls.assign_add(1)
        y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y @ self.weights), [0, x])[1]
        return {"power": y, "calls": self.calls.read_value()}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="scale")])
    def scaled(self, scale):
        return {"scaled": self.weights * scale}


def several_signatures_a_loop_and_a_side_effect(folder: pathlib.Path) -> bool:
    module = TwoSignatures()
    source = folder / "module"
    tf.saved_model.save(module, str(source), signatures={"power": module.power, "scaled": module.scaled})
    target = exported(source, "power")
    x, scale = np.array([[1.0, -1.0]], np.float32), np.float32(3.0)
    return same_answers(source, target, "power", x=x) and same_answers(source, target, "scaled", scale=scale)


def a_hash_table_with_an_asset(folder: pathlib.Path) -> bool:
    words = folder / "words.txt"
    words.write_text("apple\nbanana\ncherry\n")

    class Lookup(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            initializer = tf.lookup.TextFileInitializer(
                str(words),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            )
            self.table = tf.lookup.StaticHashTable(initializer, -1)
            self.embedding = tf.Variable(tf.reshape(tf.range(8.0), [4, 2]))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
        def embed(self, words):
            return {"embedded": tf.gather(self.embedding, self.table.lookup(tf.strings.lower(words)) + 1)}

    module = Lookup()
    source = folder / "table"
    tf.saved_model.save(module, str(source), signatures={"serving_default": module.embed})
    target = exported(source)
    words.unlink()  # the asset's copy is what counts
    return same_answers(source, target, "serving_default", words=np.array([b"Banana", b"durian"], object))


def from_tensorflow_1(folder: pathlib.Path) -> bool:
    source = folder / "v1"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        weights = tf.compat.v1.get_variable("w", initializer=tf.ones([3, 2]), use_resource=True)
        y = tf.nn.relu(x @ weights) + 1.0
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(source), {"x": x}, {"y": y})
    target = exported(source)
    return same_answers(source, target, "serving_default", x=np.array([[1.0, -5.0, 2.0]], np.float32))


CHECKS: tuple[Callable[[pathlib.Path], bool], ...] = (
    keras_model,
    several_signatures_a_loop_and_a_side_effect,
    a_hash_table_with_an_asset,
    from_tensorflow_1,
)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    checks = [functools.update_wrapper(functools.partial(check, folder), check) for check in CHECKS]
    report(checks, soft_placement=True)


if __name__ == "__main__":
    main()
