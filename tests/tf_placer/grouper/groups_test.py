"""Groups of one legality each: how they are made, ordered and described, what plans say of them, and their levels."""

import ctypes
import dataclasses
import itertools
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.refused import refused
from tests.tf_placer.planners.chains import mixed_problem
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper import groups as groups_module
from tf_placer.grouper.groups import (
    TASKS,
    Groups,
    JointPlans,
    cut_by_plans,
    expanded,
    group_shares,
    legality_classes,
    min_cut_partition,
    ordered_groups,
    repeated_groups,
    slack_groups,
    unit_groups,
)
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.unit_graph import unit_graph
from tf_placer.transform.split import split
from tf_placer.transform.split.plans import copies_of_units

# Units 1 and 3 have no choice, on device 2 and 0; the others are of one kind.
ALLOWED = np.array([[1, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]], bool)
MASKED = problem_of(
    [1, 2, 3, 4, 5],
    [(0, 2), (1, 2), (2, 3), (2, 4), (1, 4)],
    [10, 20, 30, 40, 50],
    cluster=small_cluster(3),
    allowed=ALLOWED,
)


def test_units_with_equal_keys_are_a_group_as_far_as_they_may_be_together():
    groups = Groups.of(MASKED, np.array([7, 7, 7, 0, 0]))
    # By key, then by legality: unit 3 and unit 4 of key 0, then unit 1 and the units 0 and 2 of key 7.
    assert groups.group_of_unit.tolist() == [3, 2, 3, 0, 1] and groups.group_of_unit.dtype == np.int32
    np.testing.assert_array_equal(groups.legal[groups.group_of_unit], ALLOWED)
    mixed = Groups.of(MASKED, np.array([7, 7, 7, 0, 0]), one_kind=False)
    assert mixed.group_of_unit.tolist() == [1, 1, 1, 0, 0]
    assert mixed.legal.tolist() == [[True, True, False], [True] * 3]
    # A unit that may not be where its group is goes to its first device.
    assert mixed.expand(np.array([[1, 1]])).tolist() == [[1, 2, 1, 0, 1]]


def test_plans_cut_what_they_have_apart():
    assert len(set(cut_by_plans(np.array([0, 0, 0, 1]), np.array([[0, 1, 1, 1], [0, 1, 0, 0]])))) == 4
    assert cut_by_plans(np.array([0, 0, 1]), np.array([[1, 1, 1]])).tolist() == [0, 0, 1]


def test_edges_and_sums_are_of_groups():
    groups = Groups.of(MASKED, np.array([1, 0, 1, 2, 2]))
    # Groups {1}, {0, 2}, {3}, {4}: 0 -> 2 is inside.
    assert groups.edges.tolist() == [[0, 1], [0, 3], [1, 2], [1, 3]]
    assert groups.edge_bytes.tolist() == [20, 50, 30, 40]
    assert groups.sums(np.array([1, 2, 4, 8, 16])).tolist() == [2, 5, 8, 16]
    assert Groups.of(problem_of([1] * 2, []), np.arange(2)).edges.shape == (0, 2)


def test_groups_that_are_left_out_are_of_none():
    groups = Groups.of(MASKED, np.array([1, 0, 1, 2, 2])).reordered(np.array([3, 1]))
    assert groups.group_of_unit.tolist() == [1, 2, 1, 2, 0]
    assert groups.legal.tolist() == [[True, True, False]] * 2
    assert groups.expand(np.array([[1, 0]])).tolist() == [[0, 2, 0, 0, 1]]


def test_a_coarse_problem_holds_what_its_units_hold():
    allowed = np.array([[True, True], [True, False], [True, True], [True, True]])
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], resident_bytes=[1, 2, 4, 8], allowed=allowed)
    groups = Groups.of(problem, np.array([0, 0, 0, 5]))
    coarse, unit = groups.coarse_problem(), groups.group_of_unit
    # Units 0 and 2 hold 1 + 4 bytes; unit 1 may only be on device 0.
    assert unit[0] == unit[2] and len(set(unit.tolist())) == 3
    assert coarse.resident_bytes[unit].tolist() == [5, 2, 5, 8]
    np.testing.assert_array_equal(coarse.allowed[unit], allowed)


def test_coarse_placements_take_as_long_and_as_much_memory():
    rng = np.random.default_rng(0)
    for _ in range(20):
        problem = random_problem(rng, 15, 3)
        groups = Groups.of(problem, rng.integers(0, 5, problem.num_units))
        coarse = groups.coarse_problem()
        devices = [np.flatnonzero(may) for may in coarse.allowed]
        rows = np.array([[rng.choice(each) for each in devices] for _ in range(4)], np.int32)
        whole = SimulatedEvaluator(problem).evaluate(groups.expand(rows))
        parts = SimulatedEvaluator(coarse).evaluate(rows)
        np.testing.assert_array_equal(whole.runtime_s, parts.runtime_s)
        np.testing.assert_array_equal(whole.peak_bytes, parts.peak_bytes)


def test_classes_by_hand():
    allowed = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0], [1, 1, 0], [1, 1, 1]], bool)
    classes = legality_classes(allowed)
    # The one of three units first; units 2 and 4 have one device.
    assert classes.legal.tolist() == [[True, True, True], [True, True, False]]
    assert classes.class_of_unit.tolist() == [1, 0, -1, 0, -1, 1, 0]
    assert classes.units_of_class.tolist() == [3, 2]


def test_where_nothing_is_to_decide_one_class_without_units_is_left():
    classes = legality_classes(np.array([[True, False], [False, True]]))
    assert classes.legal.tolist() == [[True, True]] and classes.units_of_class.tolist() == [0]
    assert classes.class_of_unit.tolist() == [-1, -1]


def test_groups_hold_units_of_one_class():
    groups = unit_groups(mixed_problem(), 3, "min_cut")
    # Classes by number of units: anything (6 units), then devices 0 and 1 (3 units). One group more goes to the first.
    assert groups.class_of_group.tolist() == [0, 0, 1] and groups.count == 3
    assert set(groups.group_of_unit[3:9]) == {0, 1}
    assert groups.group_of_unit[:3].tolist() == [2, 2, 2] and groups.group_of_unit[9] == 3
    assert groups.legal.tolist() == [[True] * 3, [True] * 3, [True, True, False]]
    assert groups.only_device[9] == 2


def test_what_can_wait_has_groups_of_its_own():
    # Four pairs in a chain, 100 ns an op; the second of each pair is of 1 ns and nobody waits for it. Heavy edges keep
    # the pairs together in a min cut; of the critical path of 400 ns the second ones can wait for 299, 199 and 99 ns.
    edges, edge_bytes = [(0, 1), (1, 2), (2, 3), (0, 4), (1, 5), (2, 6)], [1] * 3 + [10**6] * 3
    problem = problem_of([100] * 4 + [1] * 3, edges, edge_bytes)
    cut, slack = (unit_groups(problem, 5, kind).group_of_unit for kind in ("min_cut", "slack"))
    chain, waiting = [0, 1, 2, 3], [4, 5, 6]
    assert not set(slack[chain]) & set(slack[waiting])
    assert set(cut[chain]) & set(cut[waiting])


@pytest.mark.parametrize("count", [1, 2, 3, 6, 9, 20, 100])
def test_there_are_never_more_groups_than_asked_for(count):
    problem = branches_problem(3, 6)
    groups = unit_groups(problem, count, "slack")
    assert groups.count == min(count, problem.num_units)
    assert groups.group_of_unit.min() >= 0 and groups.group_of_unit.max() < groups.count
    # About as many as asked for are made use of.
    assert len(np.unique(groups.group_of_unit)) >= groups.count / 2


@pytest.mark.parametrize(
    ("units", "groups", "expected"),
    [
        ([100], 8, [8]),
        ([5], 8, [5]),  # fewer units than groups
        ([0], 8, [1]),  # nothing to decide
        ([1, 1, 1], 3, [1, 1, 1]),
        ([4, 4, 4], 2, [1, 1, 1]),  # more classes than groups
        # One each; of the 6 left 60 : 30 : 3 of 93 are 3.87, 1.94 and 0.19: 3 and 1, and the largest remainders.
        ([61, 31, 4], 9, [5, 3, 1]),
    ],
)
def test_shares_by_hand(units, groups, expected):
    shares = group_shares(np.array(units), groups)
    assert shares.dtype == np.int32 and np.bincount(shares, minlength=len(units)).tolist() == expected
    assert (np.diff(shares) >= 0).all()


def test_no_class_has_more_groups_than_units():
    generator = np.random.default_rng(0)
    for _ in range(100):
        units = generator.integers(1, 20, generator.integers(1, 6))
        groups = int(generator.integers(len(units), 60))
        shares = np.bincount(group_shares(units, groups), minlength=len(units))
        assert shares.sum() == min(groups, units.sum()) and (shares >= 1).all() and (shares <= units).all()


def test_a_group_without_units_has_a_legal_device_and_comes_last(monkeypatch):
    # METIS may leave parts empty, for which no plan votes.
    monkeypatch.setattr(groups_module, "min_cut_partition", lambda *_: np.ones(4, np.int32))
    problem = problem_of([1] * 4, [], cluster=small_cluster(3), allowed=np.array([[False, True, True]] * 4))
    groups = unit_groups(problem, 2, "min_cut")
    assert groups.group_of_unit.tolist() == [1] * 4 and groups.places.tolist() == [np.inf, 1.5]
    assert groups.project(problem.everything_on(2)[np.newaxis]).tolist() == [[1, 2]]


def test_a_plan_is_where_most_of_each_group_is():
    groups = ordered_groups(problem_of([1, 5, 2], [(0, 1), (1, 2)], 9), 1)
    plans = np.array([[1, 0, 1], [0, 1, 1]])  # 5 of 8 on device 0, 7 of 8 on device 1
    assert groups.project(plans).tolist() == [[0], [1]]
    assert groups.project(plans, np.array([1, 1, 1])).tolist() == [[1], [1]]


def test_the_fastest_plan_as_groups_is_taken_if_it_fits():
    problem = mixed_problem()
    groups = unit_groups(problem, 3, "min_cut")
    plans = np.array([problem.everything_on(d) for d in range(3)])
    # Plan 2 is fastest and does not fit; plan 1 has what may not be there on its first legal device.
    times = np.array([3.0, 2.0, 1.0])
    assert groups.best_of(plans, lambda rows: (times, np.array([True, True, False]))).tolist() == [1, 1, 1]
    assert groups.best_of(plans, lambda rows: (times, np.zeros(3, bool))).tolist() == [0, 0, 0]


def test_units_one_by_one_in_the_order_of_use():
    groups = ordered_groups(MASKED, None)
    # Unit 1 is first read where unit 0 is, and began later.
    assert groups.group_of_unit.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(groups.legal, ALLOWED)
    assert groups.edges.tolist() == [[0, 2], [1, 2], [1, 4], [2, 3], [2, 4]]
    assert groups.edge_bytes.tolist() == [10, 20, 50, 30, 40]


def test_what_has_no_choice_is_a_group_of_its_device():
    allowed = np.array([[0, 1], [0, 1], [1, 1], [1, 0]], bool)
    groups = ordered_groups(problem_of([1] * 4, [(0, 2), (1, 2), (2, 3)], [5, 6, 7], allowed=allowed), None)
    assert groups.group_of_unit.tolist() == [0, 0, 1, 2] and groups.first_unit.tolist() == [0, 2, 3]
    assert groups.legal.tolist() == [[False, True], [True, True], [True, False]]
    assert groups.edges.tolist() == [[0, 1], [1, 2]] and groups.edge_bytes.tolist() == [11, 7]


@pytest.mark.parametrize("count", [1, 4, 100])
def test_ordered_groups_are_of_one_kind_and_come_in_the_order_of_use(count):
    for problem in (MASKED, branches_problem(3, 4)):
        groups = ordered_groups(problem, count)
        assert sorted(set(groups.group_of_unit.tolist())) == list(range(groups.count)), "none is empty"
        np.testing.assert_array_equal(groups.legal[groups.group_of_unit], problem.allowed)
        assert groups.count <= count + problem.num_devices
    # A source, three chains and a sink: the source's group comes first, the sink's last.
    assert groups.group_of_unit[0] == 0 and groups.group_of_unit[-1] == groups.count - 1


def test_a_unit_goes_where_its_group_goes_or_to_its_only_device():
    rows = expanded(tf.constant([[1, 0], [2, 1]]), tf.constant([1, 2, 0]), tf.constant([9, 7, 9]))
    assert rows.numpy().tolist() == [[0, 7, 1], [1, 7, 2]]


def partition(problem, parts):
    return min_cut_partition(problem, unit_graph(problem), parts)


def test_two_cliques_are_cut_at_the_thin_edge_between_them():
    cliques = [list(range(0, 12, 2)), list(range(1, 12, 2))]  # numbered alternately
    edges = [pair for clique in cliques for pair in itertools.combinations(clique, 2)]
    part = partition(problem_of([100] * 12, [*edges, (4, 5)], [10_000] * len(edges) + [10]), 2)
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


def test_metis_prints_nothing_on_the_users_terminal(capfd):
    star, heavy = [(0, i) for i in range(1, 200)], 2**27
    for name, costs, edges, parts in (
        ("a unit heavier than all others", [heavy, *[1] * 199], star, 64),
        ("ten units, eight parts", [heavy, *[1] * 9], star[:9], 8),
        ("no work at all", [0] * 9, star[:8], 8),
        ("no edges", [1] * 70, [], 64),
    ):
        problem = problem_of(costs, edges)
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


# 0 -> 1 -> 2 of 100 ns each, and 3, of 40 ns, which only waits for 0.
SIDE_BRANCH = problem_of([100, 100, 100, 40], [(0, 1), (1, 2), (0, 3)], 8)


def test_what_can_wait_is_a_group_of_its_own():
    assert slack_groups(SIDE_BRANCH, 1).tolist() == [0, 0, 0, 1]
    assert slack_groups(SIDE_BRANCH, 4).tolist() == [0, 1, 2, 3]


def test_what_repeats_is_one_group():
    names = [
        "layer_0/a", "layer_0/b", "layer_1/a", "layer_1/b_1", "layer_12/a_2", "head/a", "step3/x9",
        "step14/x",
    ]  # fmt: skip
    problem = problem_of([100] * len(names), [(i, i + 1) for i in range(len(names) - 1)], names=names)
    assert repeated_groups(problem).tolist() == [0, 1, 0, 1, 0, 2, 3, 3]


def test_what_repeats_is_apart_for_each_part_of_the_batch():
    problem = analytic_problem(split(workloads.build("lstm_lm_small"), 2), Cluster.preset("p100x2"))
    groups, (part, _) = repeated_groups(problem), copies_of_units(problem)
    assert groups.max() + 1 < problem.num_units / 2
    assert all(len(set(part[groups == group].tolist())) == 1 for group in range(groups.max() + 1))
    assert {0, 1} <= set(part.tolist())


BARE = branches_problem(2, 2)  # 6 units of an op each
PROBLEM = dataclasses.replace(BARE, fusible_of_op=np.array([False, True, True, True, True, False]))
EVERY = tuple(TASKS[-1].split(","))


def plans_of(tasks=EVERY, problem=PROBLEM):
    return JointPlans(ordered_groups(problem, None), tasks, levels=4)


def test_one_two_or_three_tasks_in_their_order():
    assert EVERY == ("devices", "priorities", "fusion")
    assert len(TASKS) == len(set(TASKS)) == 7
    assert plans_of().leveled == EVERY[1:]
    assert plans_of(("devices",)).leveled == ()


def test_neutral_levels_decide_nothing():
    plans, rows = plans_of(), PROBLEM.everything_on(0)[np.newaxis]
    found = plans.decisions(rows, plans.neutral[np.newaxis]).row(0)
    assert found.priority_of_op is None and found.cluster_of_op is None
    np.testing.assert_array_equal(found.device_of_unit, rows)


def test_levels_are_those_of_the_groups_of_ops():
    plans = plans_of()
    levels = np.stack([np.arange(6) % 4, np.ones(6, np.int64)])
    found = plans.decisions(PROBLEM.everything_on(1)[np.newaxis], levels[np.newaxis])
    group = plans.groups.group_of_unit[PROBLEM.unit_of_op]
    np.testing.assert_array_equal(found.priority_of_op[0], group % 4 - 2)
    # Two branches of two ops, one cluster each: nothing that can be fused joins them.
    assert found.cluster_of_op[0].tolist() == [-1, 0, 1, 0, 1, -1]


def test_what_cannot_be_fused_has_one_level():
    priorities, fusion = plans_of().legal
    assert priorities.all()
    of_ops = fusion[plans_of().groups.group_of_unit]
    assert of_ops[:, 0].all() and of_ops[:, 1].tolist() == PROBLEM.fusible_of_op.tolist()


def test_fusion_is_refused_where_no_op_is_known_to_be_compiled():
    with refused(r"^tasks is devices,fusion, and 'arrays' has no op .*; leave fusion out$"):
        plans_of(("devices", "fusion"), BARE)
