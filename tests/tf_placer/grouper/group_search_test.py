"""Rules of groups, devices of groups as legal placements within memory, and the feed-forward Grouper."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.planners.full_devices import full_problem, loads, sized_cluster
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer.agents.colocrl import ColocRlConfig, colocated_groups, tied_groups
from tf_placer.agents.features import draw_weights
from tf_placer.agents.hdp_policy import FeedForwardGrouper
from tf_placer.grouper.group_search import GroupedPlans, children, joined, table_near, toward_elites
from tf_placer.grouper.memory_repair import MemoryRepair

HALF = np.full((2, 2), 0.5)
DRAWN = np.array([[0, 1], [0, 0], [1, 1], [1, 0]])
KEYS = np.array([[0.1, 0.1], [0.2, 0.2], [0.7, 0.7], [0.8, 0.8]])


def test_units_are_where_their_groups_are():
    # A chain of equal ops: no slack, so that four parts are four groups.
    plans = GroupedPlans(problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100), parts=2, levels=2)
    assert [len(plans.level(level).legal) for level in range(2)] == [2, 4]
    devices = np.array([[0, 1], [1, 1]])
    rows = plans.rows(0, devices)
    np.testing.assert_array_equal(rows, devices[:, plans.level(0).group_of_unit])
    np.testing.assert_array_equal(plans.devices_of(0, rows[0]), devices[0])


def test_levels_end_where_every_unit_is_a_group():
    problem = problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100)
    # 4 and 8 parts; 16 would be no finer than 8.
    assert GroupedPlans(problem, parts=4, levels=5).count == 2
    assert GroupedPlans(problem, parts=100, levels=5).count == 1


def test_most_of_the_work_says_where_a_group_is():
    problem = problem_of([10, 10, 30], [(0, 1), (1, 2)], 100)
    assert GroupedPlans(problem, 1, 1).devices_of(0, np.array([0, 0, 1])).tolist() == [1]
    assert GroupedPlans(problem, 1, 1).devices_of(0, np.array([0, 1, 0])).tolist() == [0]


def test_every_plan_is_legal():
    for seed in range(5):
        problem = random_problem(np.random.default_rng(seed), 15, 3)
        plans = GroupedPlans(problem, 3, 3)
        for level in range(plans.count):
            devices = np.random.default_rng(seed).integers(3, size=(9, len(plans.level(level).legal)))
            for row in plans.rows(level, devices):
                problem.check_legal(row)


def test_what_does_not_fit_is_moved():
    problem = full_problem(3, 0.8, seed=0)
    plans = GroupedPlans(problem, 4, 1)
    # The largest device has half of the memory, and 0.8 of all of it is in use.
    for row in plans.rows(0, np.full((4, len(plans.level(0).legal)), 2)):
        assert (loads(problem, row) <= problem.cluster.capacity_bytes()).all()


def test_groups_of_one_kind_are_legal_as_they_are():
    for seed in range(5):
        problem = random_problem(np.random.default_rng(seed), 15, 3)  # with masks
        level = GroupedPlans(problem, 3, 1, one_kind=True).level(0)
        np.testing.assert_array_equal(problem.allowed, level.legal[level.group_of_unit])
        coarse = GroupedPlans(problem, 3, 1).level(0).group_of_unit
        pairs = np.unique(np.stack([level.group_of_unit, coarse]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1], "each is a part of one group"


def test_it_moves_to_the_frequencies_of_the_fastest():
    # The fastest two are rows 1 and 0: group 0 is on device 0 in both, group 1 on each once.
    moved = toward_elites(HALF, DRAWN, np.array([2.0, 1.0, 4.0, 3.0]), elites=2, smoothing=0.2)
    np.testing.assert_allclose(moved, [[0.8 * 0.5 + 0.2, 0.8 * 0.5], [0.5, 0.5]])


def test_what_does_not_run_is_no_elite():
    moved = toward_elites(HALF, DRAWN, np.array([np.inf, np.nan, np.inf, 3.0]), elites=2, smoothing=1.0)
    np.testing.assert_array_equal(moved, [[0, 1], [1, 0]])  # row 3 alone
    # Where nothing runs nothing moves.
    moved = toward_elites(HALF, DRAWN, np.full(4, np.inf), elites=2, smoothing=1.0)
    np.testing.assert_array_equal(moved, HALF)
    assert moved is not HALF


def test_a_table_is_uniform_or_mostly_at_a_plan():
    legal = np.array([[True, True], [False, True]])
    np.testing.assert_array_equal(table_near(legal, None), [[0.5, 0.5], [0, 1]])
    np.testing.assert_allclose(table_near(legal, np.array([0, 1])), np.array([[0.85, 0.15], [0, 1]]))


def test_a_child_has_its_keys_of_an_elite_and_another():
    born = children(KEYS, elites=2, count=4000, bias=0.7, mutation=0.0, generator=np.random.default_rng(0))
    of_elite = born < 0.5
    assert set(np.unique(born)) == {0.1, 0.2, 0.7, 0.8}
    # 8000 keys, each of the elite with probability 0.7: a deviation is sqrt(0.21 / 8000) = 0.005.
    assert abs(of_elite.mean() - 0.7) < 5 * 0.0052
    assert of_elite.all(axis=1).any() and (~of_elite).all(axis=1).any()


def test_all_keys_may_be_drawn_anew():
    born = children(KEYS, 2, 50, bias=0.7, mutation=1.0, generator=np.random.default_rng(0))
    assert len(np.unique(born)) == 100 and born.min() >= 0 and born.max() < 1


def test_the_keys_of_a_group_stay_together():
    keys = np.repeat(KEYS[:, :, np.newaxis], 3, axis=2)
    born = children(keys, 2, 200, bias=0.7, mutation=0.0, generator=np.random.default_rng(0))
    assert born.shape == (200, 2, 3) and (born == born[:, :, :1]).all()
    assert (born[:, 0] != born[:, 1]).any()


def test_the_fastest_of_elites_and_offered_live_on():
    keys, times = joined(KEYS[:1], np.array([2.0]), KEYS[1:], np.array([3.0, 1.0, 2.0]), population=3)
    np.testing.assert_array_equal(times, [1, 2, 2])
    np.testing.assert_array_equal(keys, KEYS[[2, 0, 3]])  # of equal ones the elite first


def grouped(problem, **changes):
    return colocated_groups(problem, ColocRlConfig(**changes))


def members(groups):
    """Sets of units, in the order of groups."""
    return [set(np.flatnonzero(groups.group_of_unit == g).tolist()) for g in range(groups.count)]


def test_the_three_rules():
    names = (
        "net/conv2d_1/conv", "net/batch_normalization_1/norm", "lstm/step/mul", "lstm/step/mul_1", "loss",
        "gradients/loss_grad/g", "gradients/lstm/step/mul_grad/g", "update", "statistics",
    )  # fmt: skip
    edges = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (5, 6), (6, 7), (6, 8), (1, 8)]
    problem = problem_of([5] * len(names), edges, 8, names=names)
    groups = grouped(problem, largest_share=1.0)
    # By name {conv, norm}, {mul, its gradient}, {loss, its gradient}. Then mul_1 has the loss alone, and that mul's
    # gradient; which has two readers, as {conv, norm} has.
    assert members(groups) == [{0, 1}, {2, 3, 4, 5, 6}, {7}, {8}]
    assert grouped(problem, colocate=False).count == 9
    # Without the rules of layers and steps nothing ties conv and norm: both have two readers.
    plain = grouped(problem, largest_share=1.0, step_pattern="", layer_pattern="")
    assert members(plain) == [{0}, {1}, {2, 3, 4, 5, 6}, {7}, {8}]


def test_a_graph_with_one_sink_does_not_end_as_one_group():
    problem = branches_problem(4, 4)
    assert grouped(problem, largest_share=1.0).count == 1
    groups = grouped(problem, largest_share=0.3)
    # Each branch is 4,000 of 16,020 ns; source and sink are 10 each. The sink is with one of the branches.
    assert groups.count == 5
    branches = [{1 + i * 4 + b for i in range(4)} for b in range(4)]
    assert sorted(len(found) for found in members(groups)) == [1, 4, 4, 4, 5]
    assert all(any(branch <= found for found in members(groups)) for branch in branches)


def test_groups_are_in_the_order_of_their_work():
    problem = problem_of([0, 5, 0, 7], [(1, 3)], 8)
    # Ops 0 and 2 take no time and are alone: behind the others.
    assert members(grouped(problem, colocate=False)) == [{1}, {3}, {0}, {2}]


def test_kinds_of_units_are_apart():
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    problem = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)], 8, cluster=small_cluster(3), allowed=allowed)
    groups = grouped(problem, largest_share=1.0)
    assert members(groups) == [{0, 3}, {1}]  # one chain; unit 2 has one device
    np.testing.assert_array_equal(groups.legal, allowed[:2])
    np.testing.assert_array_equal(groups.expand(np.array([[1, 1], [0, 2]])), [[1, 1, 2, 1], [0, 2, 2, 0]])


@pytest.mark.parametrize("most", [1, 5, 9])
def test_too_many_are_folded(most):
    problem = random_problem(np.random.default_rng(2), 40, 3)  # with masks
    kinds = np.unique(problem.allowed[problem.allowed.sum(axis=1) > 1], axis=0)
    groups = tied_groups(problem, np.arange(problem.num_units), most)
    assert len(kinds) <= groups.count <= max(most, len(kinds))
    rows = groups.expand(np.stack([groups.legal.argmax(axis=1), 2 - groups.legal[:, ::-1].argmax(axis=1)]))
    for row in rows:
        problem.check_legal(row)
    assert all(members(groups)), "a group without units"


def test_folding_keeps_what_the_rules_tie():
    problem = branches_problem(6, 3)
    whole, folded = grouped(problem, largest_share=0.2), grouped(problem, largest_share=0.2, max_groups=3)
    assert folded.count <= 3 < whole.count
    for found in members(whole):
        assert len({int(folded.group_of_unit[unit]) for unit in found}) == 1


def test_where_nothing_is_to_be_decided_there_is_one_group_without_units():
    groups = grouped(problem_of([1, 2], [(0, 1)], 8, cluster=small_cluster(1)))
    assert groups.count == 1 and members(groups) == [set()]
    np.testing.assert_array_equal(groups.expand(np.array([[0]])), [[0, 0]])


def within(problem, need=None):
    need = problem.resident_bytes if need is None else need
    return MemoryRepair(problem, need, np.arange(problem.num_units))


SECOND_ANYWHERE = np.array([[True, False], [True, True], [True, False]])


@pytest.mark.parametrize(
    ("memory", "resident", "start", "row", "more"),
    [
        pytest.param([30, 30], [10] * 5, [0] * 5, [0, 0, 0, 1, 1], {}, id="only as much as has to, from the end"),
        # In order, 5 and 5 would fill half of each device and leave no room for the 20.
        pytest.param([20, 15], [5, 5, 20, 5], [0] * 4, [1, 1, 0, 1], {}, id="large units first, small ones between"),
        pytest.param(
            [20, 20], [10, 20, 10], [0] * 3, [0, 1, 0], {"allowed": SECOND_ANYWHERE},
            id="where they may, those without a choice first",
        ),
        pytest.param(
            [10, 20, 99, 99], [10] * 4, [0, 0, 1, 0], [0, 1, 1, 3], {"compute_ns": [[1, 1, 9, 2]] * 4},
            id="devices in use before others, the fast before the slow",
        ),
        pytest.param(
            [10, 10], [10, 0, 10, 0, 0], [0] * 5, [0, 0, 1, 1, 1], {}, id="what needs nothing goes with the one before"
        ),
    ],
)  # fmt: skip
def test_rows_within_memory_by_hand(memory, resident, start, row, more):
    costs = {"compute_ns": [1] * len(start)} | more
    bring = within(problem_of(edges=[], cluster=sized_cluster(memory), resident_bytes=resident, **costs))
    brought = bring(np.array(start, np.int32))
    assert brought.tolist() == row and not bring.fits(np.array(start)) and bring.fits(brought)
    assert bring(brought) is brought, "what fits is left alone"


def test_what_finds_room_nowhere_stays_and_is_not_called_fitting():
    problem = problem_of([1, 1], [], cluster=sized_cluster([10, 10]), resident_bytes=[10, 30])
    row = within(problem)(np.zeros(2, np.int32))
    assert row[1] == 0 and not within(problem).fits(row)


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("fill", [0.6, 0.75, 0.9])
def test_whatever_is_drawn_fits_in_devices_of_different_sizes(devices, fill):
    for seed in range(10):
        problem = full_problem(devices, fill, seed)
        bring = within(problem)
        for row in np.random.default_rng(seed).integers(0, devices, (10, problem.num_units)):
            brought = bring(row.astype(np.int32))
            assert (loads(problem, brought) <= problem.cluster.capacity_bytes()).all(), f"seed {seed}"


GROUPS, TYPES, UNITS, FEATURES = 5, 7, 9, 4


@pytest.fixture
def grouper():
    grouper = FeedForwardGrouper(GROUPS, TYPES, type_embedding_width=3, hidden_width=16)
    grouper(tf.zeros([UNITS], tf.int32), tf.zeros([UNITS, FEATURES]))
    draw_weights(grouper, seed=1)
    return grouper


def test_shapes_and_biases(grouper):
    assert grouper(tf.zeros([UNITS], tf.int32), tf.zeros([UNITS, FEATURES])).shape == (UNITS, GROUPS)
    shapes = sorted(tuple(v.shape) for v in grouper.trainable_variables)
    # Embedding, two matrices, and a bias for each of the two layers.
    assert shapes == sorted([(TYPES, 3), (3 + FEATURES, 16), (16,), (16, GROUPS), (GROUPS,)])


def test_it_is_not_linear_in_its_features(grouper):
    types = tf.zeros([UNITS], tf.int32)
    x = tf.random.stateless_normal([UNITS, FEATURES], seed=[0, 1])
    # A linear (or affine) network has f(x) + f(-x) = 2 f(0).
    bend = grouper(types, x) + grouper(types, -x) - 2 * grouper(types, tf.zeros_like(x))
    assert float(tf.reduce_max(tf.abs(bend))) > 0.1


def test_an_op_type_is_a_name_and_not_a_number(grouper):
    logits = grouper(tf.range(TYPES), tf.zeros([TYPES, FEATURES])).numpy()
    # As a scalar feature, types t, t + 1, t + 2 would lie on one ray of hidden activations almost everywhere.
    assert len(np.unique(logits.round(5), axis=0)) == TYPES
    assert (np.abs(np.diff(logits, n=2, axis=0)).max(axis=1) > 1e-3).all()


def test_units_are_grouped_independently(grouper):
    types = tf.range(UNITS) % TYPES
    x = tf.random.stateless_normal([UNITS, FEATURES], seed=[0, 2])
    changed = tf.tensor_scatter_nd_add(x, [[3]], [[1.0] * FEATURES])
    moved = np.abs(grouper(types, changed) - grouper(types, x)).max(axis=1)
    assert moved[3] > 0 and (np.delete(moved, 3) == 0).all()
