"""Plans of a split program that need no search, and ops that are better kept whole: thin products, and no others."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tests.tf_placer.problem.small_problems import cluster_of, problem_of
from tf_placer import workloads
from tf_placer.graph.item import Item
from tf_placer.grouper.groups import Groups
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.transform.split.plans import (
    SHARED,
    carried_over,
    copies_of_units,
    data_parallel_plan,
    faster_whole,
    handed_to_hosts,
)
from tf_placer.transform.split.split_batch import SplitProgram, split_program

GPUS = (0, 1)


@pytest.fixture(scope="module")
def whole() -> Problem:
    return tf_placer.build_problem(workloads.build("dense_small"), tf_placer.Cluster.preset("p100x2"))


@pytest.fixture(scope="module")
def program() -> SplitProgram:
    return split_program(workloads.build("dense_small"), 2)


@pytest.fixture(scope="module")
def problem(program: SplitProgram) -> Problem:
    return tf_placer.build_problem(program.item, tf_placer.Cluster.preset("p100x2"))


def test_every_copy_is_on_its_device_and_variables_are_shared_out(program, problem):
    row = data_parallel_plan(problem, GPUS)
    problem.check_legal(row)
    part, _ = copies_of_units(problem)
    assert (row == part)[(part != SHARED) & problem.allowed[:, list(GPUS)].all(axis=1)].all()
    held = [int(problem.resident_bytes[row == gpu].sum()) for gpu in GPUS]
    assert abs(held[0] - held[1]) <= problem.resident_bytes.max()


def test_more_parts_than_devices_go_round(problem):
    found = tf_placer.build_problem(split_program(workloads.build("dense_small"), 4).item, problem.cluster)
    row, (part, _) = data_parallel_plan(found, GPUS), copies_of_units(found)
    on_gpus = found.allowed[:, list(GPUS)].all(axis=1)
    assert set(part[on_gpus]) >= {0, 1, 2, 3}
    assert (row == part % 2)[(part != SHARED) & on_gpus].all()


def test_a_placement_of_the_whole_is_carried_over_op_by_op(program, problem, whole):
    drawn = np.random.default_rng(0).integers(0, 2, whole.num_units)
    placement = Placement(whole, whole.legalized(drawn[np.newaxis])[0])
    row = carried_over(program, problem, placement)
    problem.check_legal(row)
    of_op = dict(zip(whole.op_names, placement.device_of_op.tolist(), strict=True))
    same = [
        row[unit] == of_op[program.origin_of[name]]
        for name, unit in zip(problem.op_names, problem.unit_of_op, strict=True)
    ]
    assert np.mean(same) > 0.9  # a unit of several ops goes with the costliest


def test_copies_are_the_units_that_do_the_same_for_other_parts(problem):
    part, copies = copies_of_units(problem)
    assert copies.shape == (problem.num_units, 2)
    found = 0
    for unit in np.flatnonzero(part != SHARED).tolist():
        assert copies[unit, part[unit]] == -1
        copy = int(copies[unit, 1 - part[unit]])
        if copy >= 0:
            found += 1
            assert part[copy] == 1 - part[unit]
            ops = [np.flatnonzero(problem.unit_of_op == which) for which in (unit, copy)]
            types = [{problem.op_names[op].partition("/")[2] for op in which} for which in ops]
            assert types[0] & types[1]
    assert found > 10
    assert (part[problem.resident_bytes > 0] == SHARED).all()


def test_a_whole_batch_has_no_copies(whole):
    part, copies = copies_of_units(whole)
    assert (part == SHARED).all() and copies.shape == (whole.num_units, 0)


def test_groups_have_the_copies_of_their_units(problem):
    part, _ = copies_of_units(problem)
    groups = Groups.of(problem, part + 1)  # one for what is shared, one for each part
    of_group, copies = copies_of_units(groups.coarse_problem())
    assert of_group.tolist() == [SHARED, 0, 1]
    assert copies.tolist() == [[-1, -1], [-1, 2], [1, -1]]


@pytest.fixture(scope="module")
def item() -> Item:
    thin, wide = tf.Variable(tf.zeros([64, 64])), tf.Variable(tf.zeros([64, 4096]))

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        for _ in range(8):
            x = tf.tanh(tf.matmul(x, thin, name="thin"))
        return tf.reduce_sum(tf.nn.softmax(tf.matmul(x, wide, name="wide")))

    return Item.from_function(step, tf.zeros([64, 64]))


@pytest.fixture(scope="module")
def thin_program(item: Item) -> SplitProgram:
    return split_program(item, 2)


def costed(program: Item, takes: dict[str, int]) -> Problem:
    """The program on two GPUs, where an op takes what the longest key in its name says, else 10 us."""
    problem = tf_placer.build_problem(program, tf_placer.Cluster.preset("p100x2"))
    compute_ns = np.full_like(problem.compute_ns, 10_000)
    for op, name in enumerate(problem.op_names):
        keys = [key for key in takes if key in name]
        compute_ns[op] = takes[max(keys, key=len)] if keys else 10_000
    return dataclasses.replace(problem, compute_ns=compute_ns)


def kept(item: Item, program: SplitProgram, thin_part: int, whole_share: float = 0.7) -> frozenset[str]:
    whole = costed(item, {"thin": 1_000_000, "wide": 4_000_000})
    problem = costed(program.item, {"thin": thin_part, "wide": 2_000_000})
    return faster_whole(program, problem, whole, GPUS, whole_share * whole.compute_ns[:, 0].sum() / 1e9)


def test_what_takes_as_long_for_a_part_stays_whole(item, thin_program):
    found = kept(item, thin_program, 1_000_000)
    thin = {name for name in thin_program.split_ops if "thin" in name}
    assert len(thin) == 8 and thin <= found
    assert not any("wide" in name for name in found)
    mixed = split_program(item, 2, kept_whole=found)
    assert {name for name in mixed.split_ops if "wide" in name} and not thin & set(mixed.split_ops)


@pytest.mark.parametrize(
    ("thin_part", "whole_share"),
    [
        pytest.param(500_000, 0.7, id="a part takes half"),
        pytest.param(1_000_000, 1.0, id="placing the whole gains nothing"),
        pytest.param(1_000_000, 0.01, id="all whole is no form in parts"),
    ],
)
def test_nothing_stays_whole(item, thin_program, thin_part, whole_share):
    assert kept(item, thin_program, thin_part, whole_share) == frozenset()


@pytest.mark.parametrize("seed", range(5))
def test_no_other_choice_of_what_goes_to_the_host_costs_less(seed):
    random, edges = np.random.default_rng(seed), np.array([*itertools.combinations(range(8), 2)])
    edges = edges[random.random(len(edges)) < 0.4]
    allowed = np.ones((8, 3), bool)
    allowed[2, 0] = False  # and unit 0 is on the host
    cluster = cluster_of("CPU", "GPU", "GPU")
    ns, num_bytes = random.integers(0, 4000, (8, 3)), random.integers(1, 500, len(edges))
    problem = problem_of(ns, edges, num_bytes, cluster, allowed=allowed)
    plan = np.array([0, 1, 2, 1, 2, 1, 2, 1])
    crosses_ns = cluster.link_latency_ns()[1, 0] + num_bytes * 1e9 / cluster.link_bytes_per_s()[1, 0]

    def cost_ns(row: np.ndarray, price: float, transfer_price: float) -> float:
        goes, stays = (row == 0) & (plan != 0), row != 0
        crossing = (row[edges] == 0).sum(axis=1) == 1
        own_ns = (ns / cluster.streams())[range(8), row]
        return own_ns[stays].sum() + price * own_ns[goes].sum() + transfer_price * crosses_ns[crossing].sum()

    choices = [np.where(goes, 0, plan) for goes in itertools.product((False, True), repeat=8) if not goes[2]]
    rows, prices = handed_to_hosts(problem, plan), [*itertools.product((0.25, 0.5, 1), (1 / 16, 1))]
    for row, both in zip(rows, prices, strict=True):
        assert (
            cost_ns(row, *both) <= min(cost_ns(choice, *both) for choice in choices) + 20
        )  # all are rounded
    assert len(np.unique(rows, axis=0)) > 1


def test_without_a_host_beside_accelerators_nothing_is_handed_over():
    for cluster in (cluster_of("GPU", "GPU"), cluster_of("CPU", "CPU")):
        assert handed_to_hosts(problem_of([10, 20], [(0, 1)], 5, cluster), np.array([0, 1])).shape == (0, 2)
