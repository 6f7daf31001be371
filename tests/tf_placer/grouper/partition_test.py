"""Min-cut partitions: where they cut, and how evenly."""

import ctypes
import itertools
import sys

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.grouper.groups import min_cut_partition, repeated_groups, slack_groups, unit_slack
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph
from tf_placer.transform.split import split
from tf_placer.transform.split.plans import copies_of_units


def partition(problem, parts):
    return min_cut_partition(problem, unit_graph(problem), parts)


def test_two_cliques_are_cut_at_the_thin_edge_between_them():
    cliques = [list(range(0, 12, 2)), list(range(1, 12, 2))]  # numbered alternately
    edges = [pair for clique in cliques for pair in itertools.combinations(clique, 2)]
    problem = problem_of([100] * 12, [*edges, (4, 5)], [10_000] * len(edges) + [10])
    part = partition(problem, 2)
    assert part.dtype == np.int32
    assert {frozenset(np.flatnonzero(part == p).tolist()) for p in (0, 1)} == {frozenset(c) for c in cliques}


def test_parts_are_of_like_work():
    # A chain whose first tenth costs as much as the rest: 10 units of 900 ns and 90 of 100 ns.
    costs = np.array([900] * 10 + [100] * 90)
    part = partition(problem_of(costs, [(i, i + 1) for i in range(99)], 1000), 4)
    work = np.bincount(part, costs, minlength=4)
    # 18,000 ns in 4 parts; METIS aims at 3 % over the mean, and one unit of 900 ns may tip a part.
    assert work.sum() == 18_000 and work.max() <= 4500 * 1.03 + 900


def test_huge_weights_fit_in_metis_numbers():
    problem = problem_of([10**14] * 8, [(i, i + 1) for i in range(7)], 10**13)
    assert np.bincount(partition(problem, 2)).tolist() == [4, 4]


def test_one_part_and_no_edges():
    assert partition(problem_of([1] * 3, [(0, 1)]), 1).tolist() == [0, 0, 0]
    # Without edges nothing is cut, but the work must be shared all the same.
    assert sorted(np.bincount(partition(problem_of([100] * 8, []), 2), minlength=2).tolist()) == [4, 4]


def odd_problems():
    star = [(0, i) for i in range(1, 200)]
    yield "a unit heavier than all others", problem_of([2**27, *[1] * 199], star), 64
    yield "ten units, eight parts", problem_of([2**27, *[1] * 9], [(i, i + 1) for i in range(9)]), 8
    yield "no work at all", problem_of([0] * 9, [(i, i + 1) for i in range(8)]), 8
    yield "no edges", problem_of([1] * 70, []), 64


def test_metis_prints_nothing_on_the_users_terminal(capfd):
    for name, problem, parts in odd_problems():
        part = partition(problem, parts)
        assert part.shape == (problem.num_units,) and 0 <= part.min() <= part.max() < parts, name
    ctypes.CDLL(None).fflush(None)  # what C would print as the process ends
    print("ours", flush=True)
    print("ours too", file=sys.stderr, flush=True)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("ours\n", "ours too\n")


@pytest.mark.parametrize("parts", [3, 4, 64])
def test_with_no_more_units_than_parts_every_unit_is_one(parts):
    # METIS puts all of them into one part, or leaves half of the parts empty.
    assert partition(problem_of([1] * 3, [(0, 1), (1, 2)], 10), parts).tolist() == [0, 1, 2]


def test_parts_are_the_same_in_whatever_unit_bytes_are_counted():
    edges = [(i, j) for i in range(40) for j in (i + 1, i + 7) if j < 40]
    few = np.random.default_rng(0).integers(1, 500, len(edges))
    parts = [partition(problem_of([100] * 40, edges, few * factor), 5).tolist() for factor in (1, 10**9)]
    assert parts[0] == parts[1]


def _side_branch() -> Problem:
    """0 -> 1 -> 2 of 100 ns each, and 3, of 40 ns, which only waits for 0."""
    cost = np.array([100, 100, 100, 40])
    edges = np.array([[0, 1], [1, 2], [0, 3]], np.int32)
    return Problem.from_arrays(
        compute_ns=np.stack([cost, cost], axis=1),
        edges=edges,
        edge_bytes=np.full(3, 8),
        resident_bytes=np.zeros(4, np.int64),
        output_bytes=np.zeros(4, np.int64),
        allowed=np.ones((4, 2), bool),
        cluster=small_cluster(2),
    )


def test_slack_is_a_share_of_the_critical_path() -> None:
    # The path is 300 ns; through op 3 it is 100 + 40, so that it could wait 160.
    np.testing.assert_allclose(unit_slack(_side_branch()), [0, 0, 0, 160 / 300])


def test_what_can_wait_is_a_group_of_its_own() -> None:
    assert slack_groups(_side_branch(), 1).tolist() == [0, 0, 0, 1]
    assert slack_groups(_side_branch(), 1, classes=()).tolist() == [0, 0, 0, 0]
    assert slack_groups(_side_branch(), 4).tolist() == [0, 1, 2, 3]


def test_what_repeats_is_one_group() -> None:
    names = [
        "layer_0/a",
        "layer_0/b",
        "layer_1/a",
        "layer_1/b_1",
        "layer_12/a_2",
        "head/a",
        "step3/x9",
        "step14/x",
    ]
    problem = problem_of([100] * len(names), [(i, i + 1) for i in range(len(names) - 1)], names=names)
    assert repeated_groups(problem).tolist() == [0, 1, 0, 1, 0, 2, 3, 3]


def test_what_repeats_is_apart_for_each_part_of_the_batch() -> None:
    problem = analytic_problem(split(workloads.build("lstm_lm_small"), 2), Cluster.preset("p100x2"))
    groups, (part, _) = repeated_groups(problem), copies_of_units(problem)
    assert groups.max() + 1 < problem.num_units / 2
    assert all(len(set(part[groups == group].tolist())) == 1 for group in range(groups.max() + 1))
    assert {0, 1} <= set(part.tolist())
