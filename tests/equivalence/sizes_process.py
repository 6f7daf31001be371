"""Serves random programs that use the size of their batch, in parts, and compares them with the whole; prints JSON.

A process of its own: TensorFlow fixes its logical devices when its first op runs.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.equivalence.sizes import WIDTH, batches, function_of, random_steps
from tests.logical_devices import NUM_DEVICES
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.placed_function import placed_function
from tf_placer.rewrite.saved_model import export_saved_model
from tf_placer.transform.split.split_batch import split

CLOSE = 1e-9  # in float64, up to the order of sums
ROWS = tf.TensorSpec([None, WIDTH], tf.float64, name="x")

Outputs = list[np.ndarray] | None  # None: an error


def given(batch: int) -> tf.Tensor:
    """Examples, the same for the same batch."""
    return tf.constant(np.random.default_rng(batch).normal(size=[batch, WIDTH]))


def outputs_of(call: Callable[[], object]) -> Outputs:
    """What a call gives, or that it ends in an error of TensorFlow's."""
    try:
        return [np.asarray(one) for one in tf.nest.flatten(call())]
    except tf.errors.OpError:
        return None


def differ(expected: Outputs, found: Outputs) -> bool:
    """Whether numbers, shapes or that there is an error are not the same."""
    if expected is None or found is None:
        return (expected is None) != (found is None)
    return any(
        one.shape != other.shape or not np.allclose(one, other, rtol=CLOSE, atol=CLOSE, equal_nan=True)
        for one, other in zip(expected, found, strict=True)
    )


def served(seed: int, count: int) -> dict[str, object]:
    """One program, exported with a random plan and as a function with one: batches at which either differs."""
    rng, steps = np.random.default_rng(seed), random_steps(seed)
    parts = int(rng.integers(2, 5))
    batch = int(rng.integers(parts, 14))
    module = tf.Module()
    module.call = tf.function(function_of(steps), input_signature=[ROWS])
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        source, target = pathlib.Path(name) / "model", pathlib.Path(name) / "placed"
        signature = tf.function(
            lambda x: dict(zip("abc", module.call(x), strict=True)), input_signature=[ROWS]
        )
        tf.saved_model.save(module, str(source), signatures={"serving_default": signature})
        try:
            item = Item.from_saved_model(source, "serving_default", batch)
            problem = analytic_problem(split(item, parts), Cluster.logical(NUM_DEVICES))
        except InputError:
            return {"seed": seed, "kind": "not split", "wrong": []}
        row = rng.integers(NUM_DEVICES, size=problem.num_units)
        export_saved_model(
            source, target, Placement(problem, problem.legalized(row[np.newaxis])[0]), batch_size=batch
        )
        loaded = load_saved_model(target).signatures["serving_default"]
        here = Item.from_function(module.call, given(batch))
        problem = analytic_problem(split(here, parts), Cluster.logical(NUM_DEVICES))
        row = rng.integers(NUM_DEVICES, size=problem.num_units)
        plan = Placement(problem, problem.legalized(row[np.newaxis])[0])
        placed = placed_function(module.call, plan, given(batch))
        wrong = []
        for size in sorted({batch, *batches(seed, count)}):
            x = given(size)
            expected = outputs_of(lambda x=x: module.call(x))
            for how, call in (("saved", loaded), ("placed", placed)):
                if differ(expected, outputs_of(lambda x=x, call=call: call(x=x))):
                    wrong.append([how, size])
    alone = any("and whole for all others" in str(one.message) for one in told)
    return {"seed": seed, "kind": "of one batch" if alone else "of any batch", "steps": steps, "wrong": wrong}


def main() -> None:
    """``FIRST NUMBER BATCHES``: seeds, and batches of each."""
    first, number, count = map(int, sys.argv[1:])
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * NUM_DEVICES
    )
    print(json.dumps([served(seed, count) for seed in range(first, first + number)]))


if __name__ == "__main__":
    main()
