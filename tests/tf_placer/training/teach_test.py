"""Teaching: each lesson once an epoch, by plans that are searched once; it resumes as if it had not been stopped."""

import dataclasses
import sys

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tests.refused import refused
from tests.tf_placer.problem.small_problems import altered, branches_optimum_ns, branches_problem
from tf_placer.agents.features import PolicyKind
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import TASKS, Groups, JointPlans
from tf_placer.training.teach import improved_levels, kept_plans, teach


class OneNumber(snt.Module):
    """A student whose policy is a number that moves half way to each lesson."""

    def __init__(self):
        super().__init__()
        self.policy = snt.Module()
        self.policy.number = tf.Variable(0.0)
        self.kind = PolicyKind("OneNumber", {"number": 1}, {})
        self.seen, self.rates, self.reviews = [], [], []

    def learn(self, lesson, rate):
        self.seen.append(lesson)
        self.rates.append(float(rate))
        loss = self.loss_of(lesson)
        self.policy.number.assign_add(0.5 * (lesson - self.policy.number))
        return loss

    def review(self, lessons):
        self.reviews.append((len(self.seen), lessons))

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
        assert student.reviews == [(end, LESSONS) for end in (3, 6, 9, 12)], "all lessons"
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
    with refused("seed 0, not 1"):
        teach(OneNumber(), LESSONS, [], epochs=1, seed=1, checkpoint=tmp_path)
    other = OneNumber()
    other.kind = PolicyKind("OneNumber", {"number": 2}, {})
    with refused("versions"):
        teach(other, LESSONS, [], epochs=1, seed=0, checkpoint=tmp_path)


def test_no_lesson_is_told(tmp_path):
    with refused("no lesson"):
        teach(OneNumber(), [], [], epochs=1, seed=0, checkpoint=tmp_path)


BRANCHES, LENGTH = 4, 3
ALL = tuple(TASKS[-1].split(","))


@pytest.fixture
def problem():
    return branches_problem(BRANCHES, LENGTH)


@pytest.fixture
def branch_of_unit(problem):
    """Unit 1 + i * branches + b is op i of branch b; source and sink are groups of their own."""
    inner = np.arange(problem.num_units - 2) % BRANCHES
    return np.concatenate([[BRANCHES], inner, [BRANCHES + 1]]).astype(np.int32)


def test_plans_keep_groups_together_and_are_as_fast_as_they_say(problem, branch_of_unit, tmp_path):
    plans = kept_plans(problem, branch_of_unit, searches=2, evaluations=300, folder=tmp_path)
    assert plans.device_of_unit.shape == (2, problem.num_units)
    for group in range(BRANCHES + 2):
        members = plans.device_of_unit[:, branch_of_unit == group]
        assert (members == members[:, :1]).all()
    simulated = SimulatedEvaluator(problem).evaluate(plans.device_of_unit).runtime_s
    np.testing.assert_allclose(simulated, plans.runtime_s)
    assert plans.runtime_s[0] <= plans.runtime_s[1]
    assert plans.runtime_s[0] == pytest.approx(branches_optimum_ns(BRANCHES, LENGTH) * 1e-9)


def test_they_are_searched_once(problem, branch_of_unit, tmp_path, monkeypatch):
    first = kept_plans(problem, branch_of_unit, 1, 50, tmp_path)
    monkeypatch.setattr(sys.modules["tf_placer.training.teach"], "search", None)
    again = kept_plans(problem, branch_of_unit, 1, 50, tmp_path)
    np.testing.assert_array_equal(first.device_of_unit, again.device_of_unit)
    with pytest.raises(TypeError):  # another budget is another search
        kept_plans(problem, branch_of_unit, 1, 60, tmp_path)


def test_a_damaged_file_is_told(problem, branch_of_unit, tmp_path):
    kept_plans(problem, branch_of_unit, 1, 50, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with refused("delete it"):
        kept_plans(problem, branch_of_unit, 1, 50, tmp_path)


@pytest.fixture
def fusible(problem):
    """The same with ops that XLA compiles, on devices that take 10 ns to launch one."""
    inner = np.arange(problem.num_units) % (problem.num_units - 1) > 0
    return dataclasses.replace(altered(problem, {"launch_ns": 10}), fusible_of_op=inner)


def test_levels_are_as_fast_as_they_say_and_faster_than_none(fusible, branch_of_unit, tmp_path):
    plans = kept_plans(fusible, branch_of_unit, 2, 300, tmp_path, ALL, levels=4)
    joint = JointPlans(Groups.of(fusible, branch_of_unit), ALL, 4)
    decisions = joint.decisions(plans.device_of_unit, plans.levels)
    evaluator = SimulatedEvaluator(fusible)
    np.testing.assert_allclose(evaluator.evaluate(decisions).runtime_s, plans.runtime_s)
    assert (plans.runtime_s < evaluator.evaluate(plans.device_of_unit).runtime_s).all()
    assert plans.runtime_s[0] <= plans.runtime_s[1]
    again = kept_plans(fusible, branch_of_unit, 2, 300, tmp_path, ALL, levels=4)
    np.testing.assert_array_equal(again.levels, plans.levels)
    without = kept_plans(fusible, branch_of_unit, 2, 300, tmp_path)  # another file
    assert without.levels.shape == (2, 0, BRANCHES + 2)


def test_levels_are_of_rules_until_one_that_is_drawn_is_faster(fusible):
    joint = JointPlans(Groups.of(fusible, np.arange(fusible.num_units, dtype=np.int32)), ALL, 4)
    placement = fusible.everything_on(0)
    few, few_s = improved_levels(joint, placement, 4, seed=0)
    more, more_s = improved_levels(joint, placement, 60, seed=0)
    np.testing.assert_array_equal(few[1], joint.legal[1, :, 1])  # all that can be is fused
    assert more_s <= few_s and more.shape == few.shape
