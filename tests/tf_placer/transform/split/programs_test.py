"""Split programs compute what the program computes, and faults of the splitter are seen."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.building import build
from tests.equivalence.operations import program_of_seed
from tests.oracles.split_equality import differences, run_lifted
from tests.tf_placer.transform.random_steps import RandomStep
from tests.tf_placer.transform.split import faults
from tests.tf_placer.transform.split.mixed_axes import PROGRAMS, item_of
from tests.tf_placer.transform.split.steps import complaints, item_of_step, wrong_sizes
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.transform.split import split, split_program

BATCHES = (2, 3, 5, 6, 7, 8)


def random_item(seed: int) -> tuple[Item, int, str]:
    batch = BATCHES[seed % len(BATCHES)]
    step = RandomStep(seed, batch)
    return Item.from_function(step.function(), *step.arguments), min(batch, 2 + seed % 3), str(step)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(12))
def test_random_training_steps_compute_the_same(seed):
    item, parts, name = random_item(seed)
    assert complaints(item, parts) == [], name


@pytest.mark.medium
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(100, 106))
def test_random_training_steps_of_which_ops_are_kept_whole(seed, share):
    item, parts, name = random_item(seed)
    rng = np.random.default_rng(seed)
    kept = [op for op in split_program(item, parts).split_ops if rng.random() < share]
    found = split_program(item, parts, kept_whole=kept)
    assert found.item.splitting is not None and not set(kept) & set(found.split_ops)
    assert sorted(item.index.names[op] for op in found.item.splitting.kept_whole) == sorted(kept)
    assert complaints(item, parts, found) == [], name


def test_ops_behind_one_that_is_kept_whole_are_still_split():
    item = workloads.build("lstm_lm_small")
    split_ops = split_program(item, 2).split_ops
    kept = [op for op in split_ops if "Transpose" in op or "Reshape" in op or "MatMul" in op]
    assert kept and set(split_program(item, 2, kept_whole=kept).split_ops) == set(split_ops) - set(kept)


@pytest.mark.equivalence
@pytest.mark.parametrize("block", range(100))
def test_thousands_of_training_steps_compute_the_same(block):
    for seed in range(1000 + 30 * block, 1030 + 30 * block):
        item, parts, name = random_item(seed)
        assert complaints(item, parts) == [], f"{name}, {parts} parts"


@pytest.mark.medium
@pytest.mark.parametrize("block", range(6))
def test_random_programs_compute_the_same(block):
    """Programs whose batch is as long as their features: nothing but propagation tells one from the other."""
    checked = 0
    for seed in range(10 * block, 10 * block + 10):
        built = build(program_of_seed(seed))
        item = Item.from_function(built.concrete, *built.arguments(0))
        if not item.runs_standalone or not item.fetches:
            continue
        try:
            found = split_program(item, 2 + seed % 3)
        except InputError as error:
            assert "no batch to split" in str(error)
            continue
        checked += 1
        assert complaints(item, found.parts, found) == [], f"seed {seed}"
    assert checked >= 2


@pytest.mark.parametrize("name", ["dense_small", "branches_small", "lstm_lm_small"])
def test_small_workloads_compute_the_same(name):
    assert complaints(workloads.build(name), 3) == []


# A bias before batch normalization, whose gradient is 0: both programs give it rounding, numbers of 5e-15.
_ROUNDING = {"resnet_152_small": "variable 'conv1_conv/bias' differs"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in workloads.names() if "small" in name])
def test_all_small_workloads_compute_the_same(name):
    item = workloads.build(name)
    found = split_program(item, 2)
    steps = run_lifted(item), run_lifted(found.item)
    assert [one for one in differences(*steps) if not one.startswith(_ROUNDING.get(name, "-"))] == []
    assert differences(*steps, relative=1e-9) == []  # a wrong divisor is off by 1e-3
    assert wrong_sizes(found.item) == []


_FAULTS: list[tuple[Callable, list[str], str, str]] = [
    (faults.mean_of_parts_summed, ["dense"], "mean", "descend"),
    (faults.local_divisor, ["dense"], "by_batch", "descend"),
    (faults.statistics_of_parts, ["batch_norm"], "mean", "descend"),
    (faults.statistics_of_parts, ["fused_batch_norm"], "mean", "descend"),
    (faults.dropout_drawn_anew, ["dropout"], "mean", "descend"),
    (faults.sparse_added_as_dense, ["dense"], "mean", "descend"),
    (faults.control_edges_lost, ["after_update"], "mean", "descend"),
]


@pytest.mark.parametrize(("fault", "layers", "loss", "update"), _FAULTS)
def test_a_fault_is_seen(fault, layers, loss, update):
    item = item_of_step(7, 6, layers, loss, update)
    assert complaints(item, 2) == []
    assert complaints(item, 2, faults.split_with(fault, item, 2)) != []


def test_one_part_is_the_item_itself():
    item = workloads.build("dense_small")
    assert split(item, 1) is item


def test_statistics_of_parts_are_those_of_each_part():
    item = item_of_step(3, 6, ["batch_norm", "fused_batch_norm"], "mean", "descend")
    found = split_program(item, 2, batch_statistics="part")
    index = found.straight.item.index
    assert {"FusedBatchNormV3", "Mean"} <= {index.op_types[op] for op in found.states.statistics}
    assert not split_program(item, 2).states.statistics
    plain = split(workloads.build("dense_small"), 2, batch_statistics="part")
    assert plain.splitting is not None and plain.splitting.batch_statistics == "whole", "it has none"
    assert differences(run_lifted(item), run_lifted(found.item)) != []


def test_shapes_of_copies_are_those_of_parts():
    found = split_program(workloads.build("dense_small"), 3)
    shape_of = {
        name: specs[0].shape
        for name, specs in zip(found.item.index.names, found.item.outputs, strict=True)
        if specs
    }
    product = next(
        name for name in found.split_ops if found.origin_of.get(f"part_0/{name}") == name and "MatMul" in name
    )
    assert [shape_of[f"part_{c}/{product}"][0] for c in range(3)] == [3, 3, 2]


def test_variables_feeds_and_fetches_stay():
    item = workloads.build("dense_small")
    found = split(item, 2)
    assert (found.feeds, found.fetches, found.variables) == (item.feeds, item.fetches, item.variables)


def test_a_function_without_examples_is_refused():
    weight = tf.Variable(np.ones([4, 4], np.float32))
    item = Item.from_function(tf.function(lambda rate: tf.reduce_sum(weight) * rate), tf.constant(1.0))
    with pytest.raises(InputError, match="no input with several examples"):
        split(item, 2)


def _training_step(loss_of: Callable[..., tf.Tensor], *shapes: list[int]) -> Callable:
    weights = [tf.Variable(np.full(shape, 0.1, np.float32)) for shape in shapes]

    @tf.function(autograph=False)
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(x, *weights)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    return step


_FEATURES: list[tuple[list[int], Callable[..., tf.Tensor], list[list[int]]]] = [
    ([6], lambda x, w: tf.reduce_sum(tf.tanh(tf.tensordot(tf.nn.relu(x), w, 1))), [[6, 4]]),
    ([6], lambda x, w: tf.square(tf.reduce_sum(tf.sin(x) * w)), [[6]]),
    ([6], lambda x, w: tf.reduce_sum(tf.einsum("i,ij->j", x * 2.0, w) ** 2), [[6, 4]]),
    ([1, 6], lambda x, w: tf.reduce_sum(tf.tanh(tf.nn.relu(x) @ w)), [[6, 4]]),
    ([1, 6], lambda x: tf.reduce_max(tf.exp(x)), []),
    ([1, 8, 8, 3], lambda x, w: tf.reduce_mean(tf.nn.conv2d(x, w, 1, "SAME") ** 2), [[2, 2, 3, 4]]),
]


@pytest.mark.parametrize(("shape", "loss_of", "weights"), _FEATURES)
def test_features_of_one_example_are_no_batch(shape, loss_of, weights):
    item = Item.from_function(_training_step(loss_of, *weights), tf.ones(shape))
    with pytest.raises(InputError, match="no batch to split"):
        split(item, 2)


_EXAMPLES: list[tuple[list[int], Callable[..., tf.Tensor], list[list[int]]]] = [
    ([5, 6], lambda x, w: tf.reduce_mean(x @ w), [[6, 4]]),
    ([5, 6], lambda x, w, v: tf.reduce_mean((x @ w) @ v), [[6, 4], [4, 2]]),
    ([5, 6], lambda x, w: tf.reduce_mean(tf.linalg.matvec(x, w) ** 2), [[6]]),
    ([5, 6], lambda x, w, rows: tf.reduce_mean(tf.tanh(x @ w) * rows), [[6, 4], [5, 1]]),
    ([5], lambda x, w: tf.reduce_mean(tf.sin(x[:, tf.newaxis] * w)), [[4]]),
    ([5], lambda x: tf.reduce_mean(tf.sin(x)), []),
    ([3, 5, 6], lambda x, w: tf.reduce_mean(tf.scan(lambda s, row: tf.tanh(s @ w + row), x)), [[6, 6]]),
]


@pytest.mark.parametrize(("shape", "loss_of", "weights"), _EXAMPLES)
def test_examples_are_a_batch(shape, loss_of, weights):
    item = Item.from_function(_training_step(loss_of, *weights), tf.ones(shape))
    found = split_program(item, 2)
    assert found.batch == 5
    assert complaints(item, 2, found) == []


@pytest.mark.parametrize("kind", [tf.float16, tf.bfloat16])
def test_a_mean_of_more_half_floats_than_they_can_count(kind):
    step = tf.function(lambda x: tf.reduce_mean(tf.cast(x, kind)) * 2.0, autograph=False)
    item = Item.from_function(step, tf.cast(tf.reshape(tf.range(200_000) % 7, [5, 40_000]), tf.float32))
    found = split_program(item, 2)
    assert complaints(item, 2, found) == []
    node_of = {node.name: node for node in found.item.graph_def.node}
    assert node_of["part_0/Mean/mean"].op == "Mean", "a sum of 120,000 is more than float16 holds"


@pytest.mark.parametrize("op_type", ["Equal", "NotEqual"])
def test_shapes_that_do_not_fit_are_compared_whole(op_type):
    @tf.function(autograph=False)
    def step(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return getattr(tf.raw_ops, op_type)(x=x, y=tf.ones([3, 5]), incompatible_shape_error=False), tf.sin(x)

    assert complaints(Item.from_function(step, tf.ones([4, 2])), 4) == []


SOME = ("einsum_bb_b", "einsum_bib_bi", "diag_bands", "diag_part_bands", "set_diag", "sparse", "contrast")


@pytest.mark.parametrize("name", SOME)
def test_some_compute_the_same_with_one_example_a_part(name):
    assert complaints(item_of(name, 4, 4), 4) == []


@pytest.mark.slow
@pytest.mark.parametrize(("examples", "features"), [(5, 3), (4, 4), (6, 2)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_compute_the_same(name, examples, features):
    """In two and three parts and of one example each; a program whose batch is another, or none, is refused."""
    item = item_of(name, examples, features)
    for parts in sorted({2, 3, examples}):
        try:
            found = split_program(item, parts)
        except InputError as error:
            assert f"parts is {parts}, but the batch has" in str(error) or "no batch to split" in str(error)
            continue
        assert complaints(item, parts, found) == [], f"{parts} parts of {found.batch}"
