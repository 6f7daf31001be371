"""Changes of the best plan so far: who draws them, when, and what they are worth."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.hdp import MOVES_DEVICES, Changes, Incumbent, Regrouping
from tf_placer.agents.hdp_policy import Actions, HdpConfig

GROUP = np.array([0, 0, 1, 1, 2, 2], np.int32)
DEVICE = np.array([0, 1, 1], np.int32)
LOGITS = tf.zeros([6, 3])
CONFIG = HdpConfig(groupings=2, placements=8, regroup_after=2)
LATE = tf.constant(2)


@pytest.fixture(name="changes")
def _changes():
    problem = problem_of([1000] * 6, [(u, u + 1) for u in range(5)])
    regrouping = Regrouping(problem)
    return Changes(Incumbent(GROUP, DEVICE), regrouping, tf.ones([3, 2], tf.bool), CONFIG)


def drawn():
    """Two groupings of eight placements, none of which is the incumbent's."""
    return Actions(tf.zeros([2, 6], tf.int32), tf.zeros([2, 8, 3], tf.int32))


def test_the_incumbent_is_scored_beside_what_is_drawn(changes):
    assert changes.own == 16
    scored = changes.execute(drawn(), LOGITS, LATE, tf.constant([1, 2])).drawn
    np.testing.assert_array_equal(scored.group_of_unit, [GROUP * 0, GROUP * 0, GROUP])
    assert not scored.device_of_group[:2].numpy().any()
    np.testing.assert_array_equal(scored.device_of_group[2], [DEVICE] * 8)


@pytest.mark.parametrize("updates", [1, 2])
def test_devices_are_moved_first_and_then_units_too(changes, updates):
    tries = changes.draw(LOGITS, 8, tf.constant(updates), tf.constant([3, 4]))
    moves_devices = (np.arange(8) % MOVES_DEVICES == 0) | (updates == 1)
    groups, devices = (tensor.numpy() for tensor in changes.actions(tries))
    assert ((devices[:, 0] != DEVICE).any(axis=1) == moves_devices).all()
    assert ((groups != GROUP).any(axis=1) <= ~moves_devices).all()
    assert (groups != GROUP).any() == (updates == 2)
    # No network draws the devices.
    log_prob = changes.log_prob(LOGITS, tries).numpy()
    assert (log_prob[moves_devices] == 0).all() and (log_prob[~moves_devices] < 0).all()


def test_what_is_decided_is_that_of_the_sample(changes):
    executed = changes.execute(drawn(), LOGITS, LATE, tf.constant([5, 6]))
    tried = changes.actions(executed.tries)
    for index in (0, 15, 16, 23):
        decided = changes.decided(executed, tf.constant(index))
        own = GROUP * 0, [DEVICE * 0]
        expected = own if index < 16 else [tensor[index - 16] for tensor in tried]
        np.testing.assert_array_equal(decided.group_of_unit[0], expected[0])
        np.testing.assert_array_equal(decided.device_of_group[0], expected[1])


def test_a_regrouping_is_worth_what_the_best_plan_gains(changes):
    changes._incumbent.runtime_s.assign(10.0)
    tries = changes.draw(LOGITS, 8, LATE, tf.constant([7, 8]))
    # The first and the fifth change devices, the second does not run.
    runtime_s = tf.constant([1.0, 2.0, 9.0, 10.0, 1.0, 30.0, 8.0, 11.0])
    counts = tf.constant([True, False, True, True, True, True, True, True])
    advantage = changes.advantage(tries, runtime_s, counts, unit_s=2.0).numpy()
    gains = np.array([0.5, 0.0, 0.0, 1.0, 0.0])  # of the five that count: 1 / 2 and 2 / 2
    by_hand = (gains - gains.mean()) / gains.std()
    np.testing.assert_allclose(advantage, [0, 0, *by_hand[:2], 0, *by_hand[2:]], rtol=1e-5, atol=1e-6)


def test_nothing_is_gained_before_there_is_a_best(changes):
    tries = changes.draw(LOGITS, 8, LATE, tf.constant([7, 8]))
    assert not changes.advantage(tries, tf.ones([8]), tf.ones([8], tf.bool), 1.0).numpy().any()
