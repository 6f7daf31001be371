"""Tests plans of whole layers: every layer is on one device, within memory, and no slower than need be."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.local_search import whole_layers
from tf_placer.problem.layers import layer_of_unit, layers_of
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem

FORK = [(0, 1), (0, 2), (1, 3), (2, 3)]


def fork(memory_bytes: int = 10**12, **more) -> Problem:
    """Two branches of a layer each, between a source and a sink of another one."""
    names = ["in/a", "left/a", "right/a", "in/b"]
    cluster = small_cluster(2, memory_bytes)
    return problem_of([10, 1000, 1000, 10], FORK, 1, names=names, cluster=cluster, **more)


def found(problem: Problem, row):
    return whole_layers(problem, layers_of(problem), Decisions([np.array(row, np.int32)]))


def test_layers_that_are_whole_stay_where_they_are() -> None:
    problem = fork()
    whole = found(problem, [0, 0, 1, 0])
    assert whole is not None
    assert whole.runtime_s == whole.op_level_s and whole.slower == 0
    assert sorted(whole.device_of_unit[1:3].tolist()) == [0, 1]


def test_what_splits_a_layer_is_made_whole_and_said_to_be_slower() -> None:
    # Two chains in one layer: apart they take 1000 ns and some transfers, together 2020 ns.
    problem = problem_of([10, 1000, 1000, 10], FORK, 1, names=["m/a", "m/b", "m/c", "m/d"])
    whole = found(problem, [0, 0, 1, 0])
    assert whole is not None
    assert len(set(whole.device_of_unit.tolist())) == 1
    assert whole.runtime_s == pytest.approx(2020e-9)
    # 10 + 10 + 1 to the other device, 1000 there, 10 + 1 back, 10.
    assert whole.op_level_s == pytest.approx(1042e-9)
    assert whole.slower == pytest.approx(2020 / 1042 - 1)


def test_whole_layers_are_within_memory_or_there_are_none() -> None:
    problem = fork(100, resident_bytes=[1, 60, 60, 1])
    whole = found(problem, [0, 0, 1, 0])
    assert whole is not None and len(set(whole.device_of_unit[1:3].tolist())) == 2
    assert (whole.peak_bytes <= 100).all()
    names = ["m/a", "m/b", "m/c", "m/d"]
    one = problem_of(
        [10] * 4, FORK, 1, names=names, cluster=small_cluster(2, 100), resident_bytes=[1, 60, 60, 1]
    )
    assert found(one, [0, 0, 1, 0]) is None


def test_the_fastest_of_all_plans_of_few_layers_is_found() -> None:
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
        again = whole_layers(problem, layers, Decisions([row]))
        assert again is not None and again.device_of_unit.tolist() == whole.device_of_unit.tolist()
