"""Moves of units between groups: drawn by the Grouper's logits, scored as drawn, made as said."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.hdp import MOST_MOVES, Moves, Regrouping, exchanged
from tf_placer.base import masked

UNITS = 6
# 0 1 | 2 3 | 4 5: three groups, the last two on one device.
GROUP = tf.constant([0, 0, 1, 1, 2, 2])
DEVICE = tf.constant([0, 1, 1])


@pytest.fixture(scope="module")
def regrouping():
    problem = problem_of([1000] * UNITS, [(u, u + 1) for u in range(UNITS - 1)])
    made = Regrouping(problem)
    assert made.borders.shape == (2 * (UNITS - 1), 2)
    return made


def border(regrouping, unit, other):
    """The number of a border."""
    found = np.flatnonzero((regrouping.borders.numpy() == [unit, other]).all(axis=1))
    assert len(found) == 1
    return int(found[0])


def moves_of(border_rows, sizes, count):
    """One sample's."""
    padding = [0] * (MOST_MOVES - len(border_rows))
    return Moves(
        tf.constant([border_rows + padding]), tf.constant([sizes + padding]), tf.constant([count], tf.int32)
    )


def test_a_border_is_between_groups_on_different_devices(regrouping):
    table = tf.random.stateless_normal([UNITS, 3], [1, 2]).numpy()
    logits = regrouping.logits(tf.constant(table), GROUP, DEVICE).numpy()
    there, back = border(regrouping, 1, 2), border(regrouping, 2, 1)
    assert set(np.flatnonzero(logits > masked.ILLEGAL)) == {there, back}
    # Unit 1 leaves group 0 for 1, and unit 2 group 1 for 0.
    assert logits[there] == pytest.approx(table[1, 1] - table[1, 0])
    assert logits[back] == pytest.approx(table[2, 0] - table[2, 1])


def test_moves_are_drawn_as_often_as_they_say(regrouping):
    table = np.zeros([UNITS, 3], np.float32)
    table[1, 1] = np.log(3.0)
    logits = regrouping.logits(tf.constant(table), GROUP, DEVICE)
    moves = regrouping.draw(logits, 1000, tf.constant([3, 4]))
    drawn = moves.border.numpy().ravel()
    assert set(drawn) == {border(regrouping, 1, 2), border(regrouping, 2, 1)}
    # 3 of 4; five deviations of 4000 draws are 5 sqrt(4000 * 3 / 16) = 137.
    assert abs((drawn == border(regrouping, 1, 2)).sum() - 3000) < 137
    assert set(moves.count.numpy()) == set(range(1, MOST_MOVES + 1))


def test_pieces_follow_a_unit_within_its_group(regrouping):
    regrouping.pieces = tf.constant([[0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5]])
    row = border(regrouping, 2, 1)
    assert regrouping.moved(GROUP, moves_of([row], [0], 1)).numpy().tolist() == [[0, 0, 0, 0, 2, 2]]
    assert regrouping.moved(GROUP, moves_of([row], [2], 1)).numpy().tolist() == [[0, 0, 0, 1, 2, 2]]
    assert regrouping.moved(GROUP, moves_of([row], [0], 0)).numpy().tolist() == [GROUP.numpy().tolist()]
    # Both see the groups as they were: they change places.
    both = moves_of([border(regrouping, 1, 2), row], [2, 2], 2)
    assert regrouping.moved(GROUP, both).numpy().tolist() == [[0, 1, 0, 1, 2, 2]]


def test_the_log_probability_is_of_exactly_the_moves_that_are_made(regrouping):
    table = tf.random.stateless_normal([UNITS, 3], [5, 6])
    logits = regrouping.logits(table, GROUP, DEVICE).numpy()
    moves = regrouping.draw(tf.constant(logits), 50, tf.constant([7, 8]))
    probability = np.exp(logits) / np.exp(logits).sum()
    by_hand = [
        sum(np.log(probability[row]) for row in rows[:count])
        for rows, count in zip(moves.border.numpy(), moves.count.numpy(), strict=True)
    ]
    np.testing.assert_allclose(regrouping.log_prob(tf.constant(logits), moves), by_hand, rtol=1e-4)


def test_its_gradient_is_that_of_numbers(regrouping):
    table = tf.Variable(tf.random.stateless_normal([UNITS, 3], [9, 10]))
    moves = regrouping.draw(regrouping.logits(table, GROUP, DEVICE), 8, tf.constant([11, 12]))
    worth = tf.range(8.0) - 3.0

    def objective():
        return tf.reduce_sum(worth * regrouping.log_prob(regrouping.logits(table, GROUP, DEVICE), moves))

    with tf.GradientTape() as tape:
        value = objective()
    gradient = tf.convert_to_tensor(tape.gradient(value, table)).numpy()
    assert np.abs(gradient).max() > 0.1, "or nothing is tested"
    step = 1e-2
    for cell in [(1, 0), (1, 1), (2, 0), (2, 1), (4, 2)]:
        before = float(table[cell])
        sides = []
        for side in (step, -step):
            table.scatter_nd_update([cell], [before + side])
            sides.append(float(objective()))
        table.scatter_nd_update([cell], [before])
        assert gradient[cell] == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-2, abs=1e-2)


def test_nothing_to_move_moves_nothing():
    problem = problem_of([1000], [])
    alone = Regrouping(problem)
    logits = alone.logits(tf.zeros([1, 1]), tf.constant([0]), tf.constant([0]))
    moves = alone.draw(logits, 3, tf.constant([1, 2]))
    assert alone.moved(tf.constant([0]), moves).numpy().tolist() == [[0]] * 3


def test_prior_logits_are_exchanged_where_groups_are_others():
    prior_logits = tf.constant([[5.0, 1.0, 2.0], [6.0, 3.0, 4.0], [7.0, 8.0, 9.0]])
    after = exchanged(prior_logits, tf.constant([0, 0, 3]), tf.constant([2, 0, 3])).numpy()
    assert after.tolist() == [[2.0, 1.0, 5.0], [6.0, 3.0, 4.0], [7.0, 8.0, 9.0]]
