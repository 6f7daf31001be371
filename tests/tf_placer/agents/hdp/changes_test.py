"""Changes of the best plan so far: moves drawn by the Grouper and scored as drawn, and what they are worth."""

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles.small_steps import assert_gradients
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.hdp import (
    LEAST_PROBABILITY,
    MOST_CHANGES,
    MOST_MOVES,
    MOVES_DEVICES,
    Changes,
    Moves,
    changed_devices,
    exchanged,
    shift_to_elites,
)
from tf_placer.agents.learner import Best
from tf_placer.base import masked

UNITS = 6
# 0 1 | 2 3 | 4 5 of a chain: three groups, the last two on one device.
GROUP, DEVICE = np.array([0, 0, 1, 1, 2, 2], np.int32), np.array([0, 1, 1], np.int32)
LOGITS = tf.zeros([UNITS, 3])
LATE = tf.constant(2)


@pytest.fixture(name="changes")
def _changes():
    problem = problem_of([1000] * UNITS, [(u, u + 1) for u in range(UNITS - 1)])
    changes = Changes(problem, Best(GROUP, DEVICE), tf.ones([3, 2], tf.bool), first_update=2)
    assert changes.borders.shape == (2 * (UNITS - 1), 2)
    return changes


def border(changes, unit, neighbor):
    (number,) = np.flatnonzero((changes.borders.numpy() == [unit, neighbor]).all(axis=1))
    return int(number)


def test_a_border_is_between_groups_on_different_devices(changes):
    table = tf.random.stateless_normal([UNITS, 3], [1, 2]).numpy()
    logits = changes.border_logits(tf.constant(table)).numpy()
    there, back = border(changes, 1, 2), border(changes, 2, 1)
    assert set(np.flatnonzero(logits > masked.ILLEGAL)) == {there, back}
    # Unit 1 leaves group 0 for 1, and unit 2 group 1 for 0.
    assert logits[there] == pytest.approx(table[1, 1] - table[1, 0])
    assert logits[back] == pytest.approx(table[2, 0] - table[2, 1])


def test_moves_are_drawn_as_often_as_they_say(changes):
    table = np.zeros([UNITS, 3], np.float32)
    table[1, 1] = np.log(3.0)
    moves = changes.draw_moves(changes.border_logits(tf.constant(table)), 1000, tf.constant([3, 4]))
    drawn = moves.border.numpy().ravel()
    assert set(drawn) == {border(changes, 1, 2), border(changes, 2, 1)}
    # 3 of 4; five deviations of 4000 draws are 5 sqrt(4000 * 3 / 16) = 137.
    assert abs((drawn == border(changes, 1, 2)).sum() - 3000) < 137
    assert set(moves.count.numpy()) == set(range(1, MOST_MOVES + 1))


def test_pieces_follow_a_unit_within_its_group(changes):
    changes.pieces = tf.constant([[0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5]])
    there, back = border(changes, 1, 2), border(changes, 2, 1)
    for borders, sizes, count, expected in (
        ([back], [0], 1, [0, 0, 0, 0, 2, 2]),
        ([back], [2], 1, [0, 0, 0, 1, 2, 2]),
        ([back], [0], 0, GROUP.tolist()),
        # Both see the groups as they were: they change places.
        ([there, back], [2, 2], 2, [0, 1, 0, 1, 2, 2]),
    ):
        padding = [0] * (MOST_MOVES - len(borders))
        moves = Moves(*(tf.constant([row]) for row in (borders + padding, sizes + padding, count)))
        assert changes.moved(tf.constant(GROUP), moves).numpy().tolist() == [expected]


def test_the_log_probability_is_of_exactly_the_moves_that_are_made(changes):
    table = tf.random.stateless_normal([UNITS, 3], [5, 6])
    logits = changes.border_logits(table).numpy()
    moves = changes.draw_moves(tf.constant(logits), 50, tf.constant([7, 8]))
    probability = np.exp(logits) / np.exp(logits).sum()
    by_hand = [
        sum(np.log(probability[row]) for row in rows[:count])
        for rows, count in zip(moves.border.numpy(), moves.count.numpy(), strict=True)
    ]
    np.testing.assert_allclose(changes.log_prob(table, moves), by_hand, rtol=1e-4)


def test_its_gradient_is_that_of_numbers(changes):
    table = tf.Variable(tf.random.stateless_normal([UNITS, 3], [9, 10]))
    moves = changes.draw_moves(changes.border_logits(table), 8, tf.constant([11, 12]))
    worth = tf.range(8.0) - 3.0
    objective = lambda: tf.reduce_sum(worth * changes.log_prob(table, moves))  # noqa: E731
    assert_gradients(objective, [table], step=1e-2, rel=1e-2, abs=1e-2)


@pytest.mark.parametrize("updates", [1, 2])
def test_devices_are_moved_first_and_then_units_too(changes, updates):
    moves, (groups, devices) = changes.draw(LOGITS, 8, tf.constant(updates), tf.constant([3, 4]))
    moves_devices = (np.arange(8) % MOVES_DEVICES == 0) | (updates == 1)
    assert ((devices.numpy()[:, 0] != DEVICE).any(axis=1) == moves_devices).all()
    has_moved = (groups.numpy() != GROUP).any(axis=1)
    assert (has_moved <= ~moves_devices).all() and has_moved.any() == (updates == 2)
    # No network draws the devices.
    log_prob = changes.log_prob(LOGITS, moves).numpy()
    assert (log_prob[moves_devices] == 0).all() and (log_prob[~moves_devices] < 0).all()


def test_a_regrouping_is_worth_what_the_best_plan_gains(changes):
    moves, _ = changes.draw(LOGITS, 8, LATE, tf.constant([7, 8]))
    # Nothing is gained before there is a best plan.
    assert not changes.advantage(moves, tf.ones([8]), tf.ones([8], tf.bool), 1.0).numpy().any()
    changes._best.runtime_s.assign([10.0])
    # The first and the fifth change devices, the second does not run.
    runtime_s = tf.constant([1.0, 2.0, 9.0, 10.0, 1.0, 30.0, 8.0, 11.0])
    counts = tf.constant([True, False, True, True, True, True, True, True])
    advantage = changes.advantage(moves, runtime_s, counts, unit_s=2.0).numpy()
    gains = np.array([0.5, 0.0, 0.0, 1.0, 0.0])  # of the five that count: 1 / 2 and 2 / 2
    by_hand = (gains - gains.mean()) / gains.std()
    np.testing.assert_allclose(advantage, [0, 0, *by_hand[:2], 0, *by_hand[2:]], rtol=1e-5, atol=1e-6)


def test_nothing_to_move_moves_nothing():
    best = Best(np.zeros(1, np.int32), np.zeros(1, np.int32))
    changes = Changes(problem_of([1000], []), best, tf.ones([1, 1], tf.bool), first_update=1)
    _, (groups, devices) = changes.draw(tf.zeros([1, 1]), 3, LATE, tf.constant([1, 2]))
    assert groups.numpy().tolist() == [[0]] * 3 and devices.numpy().tolist() == [[[0]]] * 3


def test_one_to_eight_groups_change_to_other_legal_devices():
    legal = np.ones((20, 3), bool)
    legal[1] = [True, False, True]
    changed = changed_devices(tf.zeros(20, tf.int32), tf.constant(legal), 4000, tf.constant([1, 2])).numpy()
    numbers = (changed != 0).sum(axis=1)
    assert set(numbers) == set(range(1, MOST_CHANGES + 1))
    # Each number as often: 500 of 4000, five deviations of sqrt(500 * 7 / 8).
    assert np.abs(np.bincount(numbers)[1:] - 500).max() < 105
    assert set(changed[:, 1]) == {0, 2} and set(changed[:, 0]) == {0, 1, 2}


def test_prior_logits_are_exchanged_where_groups_are_others():
    prior_logits = tf.constant([[5.0, 1.0, 2.0], [6.0, 3.0, 4.0], [7.0, 8.0, 9.0]])
    after = exchanged(prior_logits, tf.constant([0, 0, 3]), tf.constant([2, 0, 3])).numpy()
    assert after.tolist() == [[2.0, 1.0, 5.0], [6.0, 3.0, 4.0], [7.0, 8.0, 9.0]]


def test_logits_of_groups_move_to_the_frequencies_of_the_elites():
    table = tf.math.log([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]])
    devices = tf.constant([[0, 0], [1, 0], [2, 2], [2, 1]])
    elite = tf.constant([1.0, 1.0, 0.0, 0.0])
    shift = shift_to_elites(tf.repeat(table[tf.newaxis], 4, axis=0), devices, elite, 0.2)
    # Frequencies among the first two are 1/2, 1/2, 0 and 1, 0, 0: 0.8 p + 0.2 f.
    np.testing.assert_allclose(tf.nn.softmax(table + shift), [[0.5, 0.3, 0.2], [0.84, 0.08, 0.08]], rtol=1e-5)
    # What the network says is averaged over the elites: the mean 0.7, 0.3 goes half of the way to 0, 1.
    logits = tf.math.log([[[0.9, 0.1]], [[0.5, 0.5]]])
    shift = shift_to_elites(logits, tf.constant([[1], [1]]), tf.ones([2]), 0.5)
    np.testing.assert_allclose(shift, np.log([[0.35 / 0.7, 0.65 / 0.3]]), rtol=1e-5)
    # Without elites nothing moves.
    assert not shift_to_elites(logits, tf.constant([[1], [1]]), tf.zeros([2]), 0.5).numpy().any()


@pytest.mark.parametrize("step", [0.3, 1.0])
def test_what_is_masked_stays_and_nothing_is_infinite(step):
    logits = masked.masked(tf.zeros([2, 1, 3]), tf.constant([[True, False, True]]))
    shift = shift_to_elites(logits, tf.constant([[0], [0]]), tf.ones([2]), step).numpy()
    assert shift[0, 1] == 0 and shift[0, 0] > 0 > shift[0, 2] and np.isfinite(shift).all()


def test_what_is_rare_falls_no_more():
    table = tf.math.log([[1.0 - LEAST_PROBABILITY / 2, LEAST_PROBABILITY / 2]])
    shift = shift_to_elites(table[tf.newaxis], tf.constant([[0]]), tf.ones([1]), 0.5).numpy()
    assert shift[0, 1] == 0 and shift[0, 0] == pytest.approx(0, abs=1e-3)
