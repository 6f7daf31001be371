"""Colocation classes in Problem.from_arrays: what is of ops, what is of units, and what cannot be together."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.problem.bounds import lower_bounds

# A read (op 0), work (1) and the update (2), with the read and the update in one unit: between units a cycle.
STEP = {"compute_ns": [0, 100, 10], "edges": [(0, 1), (1, 2)], "edge_bytes": [40, 40]}
STEP_UNITS = [1, 0, 1]


def test_units_join_memory_and_devices_and_nothing_else():
    allowed = np.array([[True, False], [True, True], [True, True]])
    problem = problem_of(
        **STEP, unit_of_op=STEP_UNITS, resident_bytes=[100, 7, 20], allowed=allowed, names=["r", "w", "u"]
    )
    assert (problem.num_ops, problem.num_units) == (3, 2)
    assert problem.unit_of_op.tolist() == STEP_UNITS
    assert problem.resident_bytes.tolist() == [7, 120]
    assert problem.allowed.tolist() == [[True, True], [True, False]]
    assert problem.op_names == ("r", "w", "u")
    assert problem.compute_ns[:, 0].tolist() == [0, 100, 10]


def test_a_unit_that_opens_and_closes_the_step_is_simulated_op_by_op():
    problem = problem_of(**STEP, unit_of_op=STEP_UNITS)
    step_s = SimulatedEvaluator(problem).evaluate(np.array([[0, 0], [1, 0]])).runtime_s
    # Together 0 + 100 + 10; apart two tensors of 40 bytes take 50 ns each.
    assert np.rint(1e9 * step_s).tolist() == [110, 210]
    assert list_schedule(problem).tolist() == [[0, 0]]
    assert lower_bounds(problem).critical_path_ns == 110


def test_ops_may_be_numbered_against_the_flow():
    problem = problem_of([10, 20, 30], [(1, 0), (2, 1)], 50, unit_of_op=[0, 1, 0], resident_bytes=[1, 2, 4])
    assert problem.op_names == ("op_2", "op_1", "op_0")
    assert problem.unit_of_op.tolist() == [0, 1, 0]
    assert problem.resident_bytes.tolist() == [5, 2]
    renumbered = problem_of([10, 20, 30], [(1, 0), (2, 1)], 50, unit_of_op=[1, 0, 0])
    assert renumbered.unit_of_op.tolist() == [0, 0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_a_unit_for_each_op_is_as_without(seed):
    generator = np.random.default_rng(seed)
    plain = random_problem(generator, 10, 3)
    given = {
        "compute_ns": plain.compute_ns,
        "edges": np.stack([plain.op_graph.producer, plain.op_graph.consumer], axis=1),
        "edge_bytes": plain.op_graph.edge_bytes,
        "cluster": plain.cluster,
        "allowed": plain.allowed[plain.unit_of_op],
        "names": plain.op_names,
    }
    without, with_units = problem_of(**given), problem_of(**given, unit_of_op=np.arange(10))
    changed = [
        field.name
        for field in dataclasses.fields(without)
        if not np.array_equal(getattr(without, field.name), getattr(with_units, field.name))
    ]
    assert changed == ["fingerprint"], f"seed {seed}"


def test_the_fingerprint_is_of_the_units_too():
    prints = {problem_of(**STEP, unit_of_op=units).fingerprint for units in ([0, 1, 0], [0, 0, 1], [0, 0, 0])}
    assert len(prints) == 3


GPU0, GPU1, BOTH = [True, False], [False, True], [True, True]


@pytest.mark.parametrize(
    ("unit_of_op", "allowed", "message"),
    [
        ([0, 0], [BOTH] * 3, r"unit_of_op has shape \(2,\), expected \(3,\)"),
        ([[0, 0, 0]], [BOTH] * 3, r"unit_of_op has shape \(1, 3\)"),
        ([0, -1, 0], [BOTH] * 3, "unit_of_op has the entry -1; give at least 0"),
        ([0, 2, 0], [BOTH] * 3, "unit_of_op has an op in unit 2 and none in unit 1; number the units"),
        ([1, 1, 1], [BOTH] * 3, "unit_of_op has an op in unit 1 and none in unit 0"),
        ([0, 1, 2**31 - 1], [BOTH] * 3, "unit_of_op has an op in unit 2147483647 and none in unit 2"),
        ([0, 0.5, 1], [BOTH] * 3, "unit_of_op: expected whole numbers"),
        ([0, 0, 0], [GPU0, BOTH, GPU1], "unit_of_op puts ops 'op_[02]' and 'op_[02]' into unit 0, .*'toy2' for both;"),
        ([0, 1, 1], [GPU0, GPU0, GPU1], "unit_of_op puts ops 'op_[12]' and 'op_[12]' into unit 1"),
    ],
)  # fmt: skip
def test_bad_units_are_told(unit_of_op, allowed, message):
    with pytest.raises(InputError, match=message) as told:
        problem_of([1, 1, 1], [(0, 1)], unit_of_op=unit_of_op, allowed=np.array(allowed))
    assert "\n" not in str(told.value)


def test_three_ops_of_which_any_two_could_be_together():
    allowed = ~np.eye(3, dtype=bool)
    with pytest.raises(
        InputError, match=r"puts ops 'op_\d' and 'op_\d' into unit 0, .*for both with the rest of it"
    ):
        problem_of([1] * 3, [], cluster=small_cluster(3), unit_of_op=[0, 0, 0], allowed=allowed)


def test_a_cycle_of_ops_is_told_by_an_op():
    with pytest.raises(InputError, match=r"edges form a cycle through op [01] \('[ab]'\)"):
        problem_of([1, 1], [(0, 1), (1, 0)], unit_of_op=[0, 0], names=["a", "b"])
