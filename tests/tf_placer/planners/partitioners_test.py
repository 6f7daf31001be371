"""Partitions by METIS and Scotch keep chains whole, and plans of whole layers are within memory."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.refused import refused
from tests.tf_placer.planners.chains import two_chains
from tests.tf_placer.problem.small_problems import cluster_of, problem_of, random_problem, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.local_search import whole_layers
from tf_placer.planners.plain import (
    accelerators,
    metis,
    mincut,
    scotch,
    static_mapping,
    usable_devices,
    why_missing,
)
from tf_placer.problem.layers import layer_of_unit, layers_of
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

INSTALLED = pytest.mark.skipif(bool(why_missing()), reason=why_missing())
BOTH = pytest.mark.parametrize("planner", [metis, pytest.param(scotch, marks=INSTALLED)])


@BOTH
def test_chains_that_share_nothing_are_a_part_each(planner):
    (row,) = planner(two_chains([10] * 24))
    # 12 ops of 10 ns a device, and no edge is cut.
    assert len(set(row[:12].tolist())) == len(set(row[12:].tolist())) == 1
    assert row[0] != row[12]


@BOTH
def test_a_device_of_a_third_of_the_speed_gets_a_fourth(planner):
    # Every op takes 30 on device 1 and 10 on device 0: speeds 1 and 1/3, so 30 and 10 of 40 ops. METIS may be 3 % off
    # and Scotch 5 % of all, and a chain is halved in whole ops.
    (row,) = planner(problem_of([[10, 30]] * 40, [(i, i + 1) for i in range(39)], 5))
    assert abs(np.count_nonzero(row == 1) - 10) <= 2


def test_cpus_are_left_out_once_where_there_is_anything_else():
    problem = problem_of([10] * 30, [], cluster=cluster_of("CPU", "GPU", "GPU"))
    assert accelerators(problem).tolist() == [1, 2] and usable_devices(problem).tolist() == [0, 1, 2]
    assert [np.unique(row).tolist() for row in metis(problem)] == [[1, 2], [0, 1, 2]]
    assert accelerators(problem_of([10], [], cluster=cluster_of("CPU", "CPU", "CPU"))).tolist() == [0, 1, 2]


@INSTALLED
def test_only_scotch_uses_the_cpu():
    problem = problem_of([10] * 30, [], cluster=cluster_of("CPU", "GPU", "GPU"))
    assert np.unique(scotch(problem)).tolist() == [0, 1, 2]
    assert np.unique(mincut(problem)).tolist() == [1, 2]


@INSTALLED
@pytest.mark.parametrize("device", [0, 1])
def test_units_without_a_choice_are_known_to_the_program(device):
    # Its own answer, before anything illegal is moved: 240 ns are shared as 120 and 120, 5 % of all may be off.
    allowed = np.ones((24, 2), bool)
    allowed[5, 1 - device] = allowed[17, device] = False
    problem = two_chains([10] * 24, allowed=allowed)
    part = static_mapping(problem, unit_graph(problem), np.arange(2), np.full(2, 0.5))
    assert (part[5], part[17]) == (device, 1 - device)
    assert abs(np.count_nonzero(part == device) - 12) <= 1


def test_without_the_program_it_is_one_line(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with refused(r"scotch_gmap is not installed.*; give it by `apt-get install scotch`"):
        scotch(two_chains([10] * 24))


FORK = [(0, 1), (0, 2), (1, 3), (2, 3)]


def fork(memory_bytes: int = 10**12, **more) -> Problem:
    """Two branches of a layer each, between a source and a sink of another one."""
    names = ["in/a", "left/a", "right/a", "in/b"]
    cluster = small_cluster(2, memory_bytes)
    return problem_of([10, 1000, 1000, 10], FORK, 1, names=names, cluster=cluster, **more)


def found(problem: Problem, row):
    return whole_layers(problem, layers_of(problem), Decisions([np.array(row, np.int32)]))


def test_layers_that_are_whole_stay_where_they_are():
    whole = found(fork(), [0, 0, 1, 0])
    assert whole is not None
    assert whole.runtime_s == whole.op_level_s
    assert sorted(whole.device_of_unit[1:3].tolist()) == [0, 1]


def test_what_splits_a_layer_is_made_whole_and_is_slower():
    # Two chains in one layer: apart they take 1000 ns and some transfers, together 2020 ns.
    whole = found(problem_of([10, 1000, 1000, 10], FORK, 1, names=["m/a", "m/b", "m/c", "m/d"]), [0, 0, 1, 0])
    assert whole is not None
    assert len(set(whole.device_of_unit.tolist())) == 1
    assert whole.runtime_s == pytest.approx(2020e-9)
    # 10 + 10 + 1 to the other device, 1000 there, 10 + 1 back, 10.
    assert whole.op_level_s == pytest.approx(1042e-9)


def test_whole_layers_are_within_memory_or_there_are_none():
    whole = found(fork(100, resident_bytes=[1, 60, 60, 1]), [0, 0, 1, 0])
    assert whole is not None and len(set(whole.device_of_unit[1:3].tolist())) == 2
    assert (whole.peak_bytes <= 100).all()
    names = ["m/a", "m/b", "m/c", "m/d"]
    one = problem_of([10] * 4, FORK, 1, small_cluster(2, 100), [1, 60, 60, 1], names=names)
    assert found(one, [0, 0, 1, 0]) is None


def test_the_fastest_of_all_plans_of_few_layers_is_found():
    rng = np.random.default_rng(1)
    for _ in range(10):
        problem = random_problem(rng, 12, 2)
        names = [f"layer_{layer}/op_{op}" for op, layer in enumerate(rng.integers(0, 4, problem.num_ops))]
        problem = dataclasses.replace(problem, op_names=tuple(names))
        layers = layers_of(problem)
        group = layer_of_unit(problem, layers)
        rows = []
        for devices in itertools.product(range(2), repeat=len(layers)):
            row = np.array(devices, np.int32)[group]
            if problem.allowed[np.arange(problem.num_units), row].all():
                rows.append(row)
        row = problem.legalized(rng.integers(0, 2, problem.num_units))
        whole = whole_layers(problem, layers, Decisions([row]))
        assert whole is not None
        times_s = (
            SimulatedEvaluator(problem).evaluate(np.stack(rows)).runtime_s if rows else np.array([np.inf])
        )
        assert whole.runtime_s <= times_s.min() + 1e-12
