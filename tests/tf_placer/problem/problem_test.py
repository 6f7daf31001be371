"""Problem.from_arrays: what is simulated is what was given, whatever the order; bad arrays are named."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.costs.formulas import OpWork
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.problem import Problem


def runtime_ns(problem: Problem, device_of_unit) -> int:
    measurement = SimulatedEvaluator(problem).evaluate(np.array([device_of_unit], np.int32))
    return round(float(measurement.runtime_s[0]) * 1e9)


def peak_bytes(problem: Problem, device_of_unit) -> list[int]:
    measured = SimulatedEvaluator(problem).evaluate(np.array([device_of_unit], np.int32)).peak_bytes
    assert measured is not None
    return [int(b) for b in measured[0]]


def test_edges_of_one_tensor_cross_once():
    shape = {"compute_ns": [100, 50, 50], "edges": [(0, 1), (0, 2)], "edge_bytes": 1000}
    # One transfer: 100 + (10 + 1000), then both readers one after the other.
    assert runtime_ns(problem_of(**shape, edge_tensor=[7, 7]), [0, 1, 1]) == 100 + 1010 + 50 + 50
    # Two transfers queue on the channel; the first reader runs during the second.
    assert runtime_ns(problem_of(**shape), [0, 1, 1]) == 100 + 1010 + 1010 + 50


def test_equal_tensor_ids_of_different_producers_are_different_tensors():
    problem = problem_of([100, 100, 50], [(0, 2), (1, 2)], [1000, 1000], edge_tensor=[0, 0])
    # Producers end at 100 and 200; the second transfer starts when the first is over, at 1110.
    assert runtime_ns(problem, [0, 0, 1]) == 100 + 1010 + 1010 + 50


def test_an_edge_listed_twice_is_read_once():
    problem = problem_of([100, 50], [(0, 1), (0, 1)], 1000, edge_tensor=[3, 3])
    assert list(problem.consumer_op) == [1]
    assert runtime_ns(problem, [0, 1]) == 100 + 1010 + 50


def test_units_may_be_numbered_against_the_flow():
    # 2 -> 1 -> 0, all apart: 30 + 110 + 20 + 60 + 10.
    problem = problem_of([10, 20, 30], [(1, 0), (2, 1)], [50, 100])
    assert runtime_ns(problem, [0, 1, 0]) == 30 + 110 + 20 + 60 + 10
    assert problem.op_names == ("unit_2", "unit_1", "unit_0")
    assert problem.name_of_unit(2) == "unit_2"
    assert list(problem.compute_ns[:, 0]) == [30, 20, 10]


@pytest.mark.parametrize("seed", range(5))
def test_renumbered_units_take_the_same_time(seed):
    # With a device for every unit no two ops compete, so a step takes as long under any numbering.
    generator = np.random.default_rng(seed)
    units = 7
    cost = generator.integers(1, 500, units)
    edges = [(a, b) for a in range(units) for b in range(a + 1, units) if generator.random() < 0.5]
    num_bytes = generator.integers(0, 300, len(edges))
    new = generator.permutation(units)
    shuffled = generator.permutation(len(edges))
    cluster = small_cluster(units)
    forward = problem_of(cost, edges, num_bytes, cluster)
    permuted = problem_of(cost[np.argsort(new)], new[np.array(edges)][shuffled], num_bytes[shuffled], cluster)
    device_of_unit = generator.permutation(units)
    expected = runtime_ns(forward, device_of_unit)
    assert expected > cost.max(), f"seed {seed}"
    assert runtime_ns(permuted, device_of_unit[np.argsort(new)]) == expected, f"seed {seed}"


def test_output_bytes_count_at_the_peak():
    assert peak_bytes(problem_of([10], [], resident_bytes=100, output_bytes=500), [1]) == [0, 600]
    # 300 of unit 0's 500 bytes are read by unit 1: 500 while unit 0 runs, then 300 + 250 while unit 1 runs.
    both = problem_of([10, 10], [(0, 1)], 300, output_bytes=[500, 250])
    assert peak_bytes(both, [0, 0]) == [300 + 250, 0]
    # Apart, the far device holds the copy and unit 1's output.
    assert peak_bytes(both, [0, 1]) == [500, 300 + 250]
    # A tensor with two readers is one tensor: its 300 bytes cover an output of 300.
    shared = problem_of([10, 1, 1], [(0, 1), (0, 2)], 300, output_bytes=[300, 0, 0], edge_tensor=[0, 0])
    assert peak_bytes(shared, [0, 0, 0]) == [300, 0]


def test_no_unit_and_one_unit():
    with pytest.raises(InputError, match="compute_ns has no rows; give at least one unit"):
        problem_of(np.zeros((0, 2)), [])
    assert runtime_ns(problem_of([42], []), [1]) == 42


def test_the_digest_is_of_everything_but_the_name():
    given = {"compute_ns": [100, 50], "edges": [(0, 1)], "edge_bytes": 8, "resident_bytes": 1}
    digest = problem_of(**given).digest()
    assert problem_of(**given, name="other").digest() == digest
    changes = (
        {"compute_ns": [100, 51]},
        {"edges": []},
        {"edge_bytes": 9},
        {"resident_bytes": 2},
        {"names": ["a", "b"]},
        {"allowed": np.array([[True, True], [True, False]])},
        {"cluster": small_cluster(memory_bytes=7)},
        {"cluster": small_cluster(3)},
    )
    assert len({digest, *(problem_of(**given | change).digest() for change in changes)}) == 1 + len(changes)


def test_the_digest_is_what_it_was():
    # Printed by commit 15ed4d9, before problems had work: checkpoints of its searches go on.
    problem = problem_of(
        [[100, 50], [7, 9], [0, 3]],
        [(2, 0), (2, 1), (0, 1)],
        [1000, 1000, 8],
        resident_bytes=[1, 2, 3],
        output_bytes=[500, 0, 0],
        edge_tensor=[5, 5, 6],
        names=["a", "b", "c"],
        allowed=np.array([[True, True], [True, False], [False, True]]),
    )
    assert problem.fingerprint == "ecb5c4cba3a08d54506c481821030a29cb06abbb4c1bc9af726a3d4d522ae589"
    assert problem.digest() == "e5cff9d7db6e4115"
    work = OpWork(flops=np.ones(3), num_bytes=np.ones(3), launches=np.ones(3))
    assert dataclasses.replace(problem, work=work).digest() == "e5cff9d7db6e4115"


def test_the_fingerprint_is_of_the_graph():
    same = [problem_of([10, 20], [(0, 1)], 5) for _ in range(2)]
    assert same[0].fingerprint == same[1].fingerprint
    others = [
        problem_of([10, 21], [(0, 1)], 5),
        problem_of([10, 20], [(1, 0)], 5),
        problem_of([10, 20], [(0, 1)], 6),
    ]
    assert len({p.fingerprint for p in [same[0], *others]}) == 4


def test_a_cycle_names_a_unit():
    with pytest.raises(InputError, match=r"cycle through unit 1 \('b'\)"):
        problem_of([1, 1, 1], [(0, 1), (1, 1)], names=["a", "b", "c"])
    # Unit 0 waits for the cycle but is not on it.
    with pytest.raises(InputError, match=r"cycle through unit [12] "):
        problem_of([1, 1, 1], [(1, 2), (2, 1), (2, 0)])


def test_check_legal_names_the_unit_and_the_choice():
    problem = problem_of([1, 1], [], names=["a", "b"], allowed=np.array([[True, True], [True, False]]))
    problem.check_legal(np.array([1, 0]))
    with pytest.raises(InputError, match=r"'b' has no kernel on .*GPU:1; it can run on .*GPU:0"):
        problem.check_legal(np.array([1, 1]))
    with pytest.raises(InputError, match=r"unit 0 \('a'\) is on device 2.*devices 0 to 1"):
        problem.check_legal(np.array([2, 0]))
    with pytest.raises(InputError, match="on device -1"):
        problem.check_legal(np.array([-1, 0]))
    with pytest.raises(InputError, match=r"shape \(3,\), expected \(2,\)"):
        problem.check_legal(np.zeros(3, np.int32))


ALLOWED = np.array([[True, True, True], [False, True, True], [False, False, True]])


def test_legalized_keeps_what_is_legal_and_takes_the_first_device_else():
    problem = problem_of([1] * 3, [], cluster=small_cluster(3), allowed=ALLOWED)
    rows = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2]])
    assert problem.legalized(rows).tolist() == [[0, 1, 2], [1, 1, 2], [2, 2, 2]]
    assert problem.legalized(rows[0]).tolist() == [0, 1, 2]
    assert problem.legalized(rows[np.newaxis]).shape == (1, 3, 3)
    assert problem.legalized(rows).dtype == np.int32
    assert problem.legalized(rows[:0]).shape == (0, 3)
    # Unit 1's first legal device is 2 now.
    assert problem.legalized(rows, order=[2, 0, 1]).tolist() == [[0, 2, 2], [1, 1, 2], [2, 2, 2]]
    assert rows[0].tolist() == [0, 0, 0]
    assert problem.everything_on(0).tolist() == [0, 1, 2]


def test_name_of_a_unit_is_its_first_op():
    problem = dataclasses.replace(problem_of([1, 1, 1], []), unit_of_op=np.array([1, 0, 0], np.int32))
    assert problem.name_of_unit(0) == "unit_1"
