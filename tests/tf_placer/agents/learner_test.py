"""Steps down a loss, whose parts add up to the whole; and the best plans of three, by hand."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.learner import Best, adam, descend, summed_gradients

INF = float("inf")


def test_moments_that_are_there_from_the_start_leave_no_trace():
    ready, fresh = tf.Variable([1.0, -2.0]), tf.Variable([1.0, -2.0])
    with_moments, without = adam(0.1, (ready,)), snt.optimizers.Adam(0.1)
    assert len(with_moments.m) == 1 and ready.numpy().tolist() == [1.0, -2.0]
    for optimizer, variable in ((with_moments, ready), (without, fresh)):
        for gradient in (tf.constant([0.5, -1.0]), tf.constant([0.1, 3.0])):
            optimizer.apply([gradient], [variable])
    np.testing.assert_array_equal(ready, fresh)


def test_each_optimizer_clips_by_a_norm_of_its_own():
    # loss = 3 a + 4 b + 0.1 c: the gradient of the first two has norm 5, that of the third 0.1.
    one, other = [tf.Variable(0.0), tf.Variable(0.0)], [tf.Variable(0.0)]
    steps = [(one, snt.optimizers.SGD(1.0)), (other, snt.optimizers.SGD(1.0))]
    value = descend(lambda: 7.0 + 3.0 * one[0] + 4.0 * one[1] + 0.1 * other[0], steps, clip=1.0)
    assert float(value) == 7.0, "of before the step"
    assert [float(variable) for variable in (*one, *other)] == pytest.approx([-0.6, -0.8, -0.1])


@pytest.mark.parametrize("part", [1, 2, 6])
def test_gradients_of_parts_add_up(part):
    weight, unused = tf.Variable(2.0), tf.Variable([1.0])
    rows = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = summed_gradients(
        lambda first: tf.reduce_sum(tf.square(weight * rows[first : first + part])), [weight, unused], 6, part
    )
    assert float(found[0]) == 2 * 2.0 * 91  # d/dw w^2 sum r^2, sum of squares 91
    assert found[1].numpy().tolist() == [0.0]


def take(best, rows, times):
    best.take([tf.constant(rows, tf.int32)], tf.constant(times, tf.float32))
    return best.decisions[0].numpy().tolist(), best.runtime_s.numpy().tolist()


def test_the_fastest_of_all_updates_are_kept():
    best = Best(np.array([1, 1], np.int32), count=2)
    assert best.known.numpy().tolist() == [0, 0]
    assert take(best, [[0, 0], [0, 1]], [3.0, INF]) == ([[0, 0], [1, 1]], [3.0, INF])
    assert best.known.numpy().tolist() == [1, 0]
    assert take(best, [[2, 0], [2, 1], [2, 2]], [4.0, 2.0, 1.0]) == ([[2, 2], [2, 1]], [1.0, 2.0])
    assert take(best, [[0, 0]], [9.0]) == ([[2, 2], [2, 1]], [1.0, 2.0])
    assert best.fastest[0].numpy().tolist() == [2, 2]


def test_the_same_plan_again_takes_no_place():
    best = Best(np.array([1], np.int32), count=3)
    take(best, [[0], [0], [2]], [1.0, 1.0, 5.0])
    rows, times = take(best, [[0], [2]], [1.0, 5.0])
    assert rows[:2] == [[0], [2]] and times == [1.0, 5.0, INF]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_any_number_may_be_kept_and_where_nothing_runs_nothing_is_known(count):
    best = Best(np.array([1], np.int32), count=count)
    assert take(best, [[0], [0]], [INF, INF]) == ([[1]] * count, [INF] * count)
    assert take(best, [[0], [2]], [2.0, 1.0])[1] == [1.0, 2.0][:count]


def test_decisions_of_several_arrays_are_replaced_by_faster_ones_alone():
    best = Best(np.zeros(2, np.int32), np.zeros(1, np.int32))
    for row, runtime_s in ((3, 2.0), (1, 2.0), (1, INF)):
        best.take([tf.constant([[row, 1]]), tf.constant([[row]])], tf.constant([runtime_s]))
        assert [rows.numpy().tolist() for rows in best.fastest] == [[3, 1], [3]]
        assert best.runtime_s.numpy().tolist() == [2.0]
