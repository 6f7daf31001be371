"""Programs that use the size of their batch in every way: the same in parts at a plan's batch, and whole at others."""

import collections
import pathlib
import warnings
from collections.abc import Callable

import numpy as np
import pytest
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
pytestmark = pytest.mark.own_process(exact="soft", timeout_s=3_600)

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


def random_plan(item: Item, parts: int, rng: np.random.Generator) -> Placement:
    """Of an item in parts, on all devices."""
    problem = analytic_problem(split(item, parts), Cluster.logical(NUM_DEVICES))
    row = rng.integers(NUM_DEVICES, size=problem.num_units)
    return Placement(problem, problem.legalized(row[np.newaxis])[0])


def check(seed: int, count: int, folder: pathlib.Path) -> str:
    """One program, exported with a random plan and as a function with one, is right at ``count`` batches: its kind."""
    rng, steps = np.random.default_rng(seed), random_steps(seed)
    parts = int(rng.integers(2, 5))
    batch = int(rng.integers(parts, 14))
    module = tf.Module()
    module.call = tf.function(function_of(steps), input_signature=[ROWS])
    source, target = folder / f"model {seed}", folder / f"placed {seed}"
    signature = tf.function(lambda x: dict(zip("abc", module.call(x), strict=True)), input_signature=[ROWS])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tf.saved_model.save(module, str(source), signatures={"serving_default": signature})
        try:
            plan = random_plan(Item.from_saved_model(source, "serving_default", batch), parts, rng)
        except InputError:
            return "not split"
        export_saved_model(source, target, plan, batch_size=batch)
        loaded = load_saved_model(target).signatures["serving_default"]
        plan = random_plan(Item.from_function(module.call, given(batch)), parts, rng)
        placed = placed_function(module.call, plan, given(batch))
        for size in sorted({batch, *batches(seed, count)}):
            x = given(size)
            expected = outputs_of(lambda x=x: module.call(x))
            for how, call in (("saved", loaded), ("placed", placed)):
                outputs = outputs_of(lambda x=x, call=call: call(x=x))
                assert not differ(expected, outputs), f"{how}, batch {size}, seed {seed}: {steps}"
    is_alone = any("and whole for all others" in str(one.message) for one in caught)
    return "of one batch" if is_alone else "of any batch"


@pytest.mark.medium
def test_programs_are_served_alike_for_other_batches(tmp_path):
    kinds = collections.Counter(check(seed, 8, tmp_path) for seed in range(4))
    assert kinds["of one batch"] and not kinds["of any batch"]


@pytest.mark.equivalence
@pytest.mark.parametrize("first", range(1_000, 1_100, 10))
def test_many_programs_are_served_alike_at_forty_batches(first, tmp_path):
    for seed in range(first, first + 10):
        check(seed, 40, tmp_path)
