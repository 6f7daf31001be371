"""Teaching: each lesson once an epoch, and a training that is stopped goes on as if it had not been."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.weights import PolicyKind
from tf_placer.base.arguments import InputError
from tf_placer.training.teach import teach


class OneNumber(snt.Module):
    """A student whose policy is a number that moves half way to each lesson."""

    def __init__(self):
        super().__init__()
        self.policy = snt.Module()
        self.policy.number = tf.Variable(0.0)
        self.kind = PolicyKind("OneNumber", {"number": 1}, {})
        self.seen, self.rates = [], []

    def learn(self, lesson, rate):
        self.seen.append(lesson)
        self.rates.append(float(rate))
        loss = self.loss_of(lesson)
        self.policy.number.assign_add(0.5 * (lesson - self.policy.number))
        return loss

    def loss_of(self, lesson):
        return tf.square(lesson - self.policy.number)


LESSONS = [1.0, 2.0, 4.0]


def test_each_lesson_once_an_epoch_in_an_order_of_the_seed(tmp_path):
    students = [OneNumber() for _ in range(3)]
    for number, (student, seed) in enumerate(zip(students, (0, 0, 1), strict=True)):
        teach(student, LESSONS, [], epochs=4, seed=seed, checkpoint=tmp_path / str(number))
    for student in students:
        epochs = np.array(student.seen).reshape(4, 3)
        np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(LESSONS, (4, 1)))
        assert len({tuple(epoch) for epoch in epochs}) > 1
    assert students[0].seen == students[1].seen != students[2].seen


def test_losses_are_those_before_each_step_and_of_what_is_held_out_after_the_epoch(tmp_path):
    student = OneNumber()
    (epoch,) = teach(student, [1.0], [3.0, 5.0], epochs=1, seed=0, checkpoint=tmp_path)
    assert (epoch.number, epoch.loss) == (1, 1.0)  # (1 - 0)^2; then the number is 0.5
    assert epoch.held_out == pytest.approx((2.5**2 + 4.5**2) / 2)
    assert student.seen == [1.0]


def test_a_training_that_was_stopped_goes_on(tmp_path):
    class Stopped(Exception):
        pass

    def stop_at_three(epoch):
        if epoch.number == 3:
            raise Stopped

    whole, first, second = OneNumber(), OneNumber(), OneNumber()
    told = teach(whole, LESSONS, [3.0], epochs=5, seed=7, checkpoint=tmp_path / "whole")
    with pytest.raises(Stopped):
        teach(first, LESSONS, [3.0], 5, 7, tmp_path / "stopped", show=stop_at_three)
    shown = []
    again = teach(second, LESSONS, [3.0], 5, 7, tmp_path / "stopped", show=shown.append)
    assert again == told and shown == told[-len(shown) :] and 0 < len(shown) < 5
    assert float(second.policy.number) == float(whole.policy.number)
    assert teach(OneNumber(), LESSONS, [3.0], 5, 7, tmp_path / "stopped") == told  # nothing is left to do


def test_a_folder_of_another_training_is_refused(tmp_path):
    teach(OneNumber(), LESSONS, [], epochs=1, seed=0, checkpoint=tmp_path)
    with pytest.raises(InputError, match="seed 0, not 1"):
        teach(OneNumber(), LESSONS, [], epochs=1, seed=1, checkpoint=tmp_path)
    other = OneNumber()
    other.kind = PolicyKind("OneNumber", {"number": 2}, {})
    with pytest.raises(InputError, match="versions"):
        teach(other, LESSONS, [], epochs=1, seed=0, checkpoint=tmp_path)


def test_no_lesson_is_told(tmp_path):
    with pytest.raises(InputError, match="no lesson"):
        teach(OneNumber(), [], [], epochs=1, seed=0, checkpoint=tmp_path)
