"""The best plans of three, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.agents.learner import BestPlans

INF = float("inf")


def take(best, rows, times):
    best.take(tf.constant(rows, tf.int32), tf.constant(times, tf.float32))
    return best.device_of_group.numpy().tolist(), best.runtime_s.numpy().tolist()


def test_the_fastest_of_all_updates_are_kept():
    best = BestPlans(np.array([1, 1], np.int32), 2)
    assert best.known.numpy().tolist() == [0, 0]
    assert take(best, [[0, 0], [0, 1]], [3.0, INF]) == ([[0, 0], [1, 1]], [3.0, INF])
    assert best.known.numpy().tolist() == [1, 0]
    assert take(best, [[2, 0], [2, 1], [2, 2]], [4.0, 2.0, 1.0]) == ([[2, 2], [2, 1]], [1.0, 2.0])
    assert take(best, [[0, 0]], [9.0]) == ([[2, 2], [2, 1]], [1.0, 2.0])


def test_the_same_plan_again_takes_no_place():
    best = BestPlans(np.array([1], np.int32), 3)
    take(best, [[0], [0], [2]], [1.0, 1.0, 5.0])
    rows, times = take(best, [[0], [2]], [1.0, 5.0])
    assert rows[:2] == [[0], [2]] and times == [1.0, 5.0, INF]


def test_where_nothing_runs_nothing_is_known():
    best = BestPlans(np.array([1], np.int32), 2)
    assert take(best, [[0], [0]], [INF, INF])[1] == [INF, INF]


@pytest.mark.parametrize("count", [0, 1])
def test_any_number_may_be_kept(count):
    best = BestPlans(np.array([1], np.int32), count)
    assert take(best, [[0], [2]], [2.0, 1.0])[1] == [1.0][:count]
