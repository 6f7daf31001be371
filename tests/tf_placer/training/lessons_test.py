"""Plans for lessons: within groups, the fastest first, searched once."""

import dataclasses
import sys

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_optimum_ns, branches_problem
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import TASKS, Groups, JointPlans
from tf_placer.training.teach import improved_levels, kept_plans

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
    with pytest.raises(InputError, match="delete it"):
        kept_plans(problem, branch_of_unit, 1, 50, tmp_path)


@pytest.fixture
def fusible(problem):
    """The same with ops that XLA compiles, on devices that take 10 ns to launch one."""
    cluster = dataclasses.replace(
        problem.cluster,
        devices=tuple(dataclasses.replace(device, launch_ns=10) for device in problem.cluster.devices),
    )
    inner = np.arange(problem.num_units) % (problem.num_units - 1) > 0
    return dataclasses.replace(problem, fusible_of_op=inner, cluster=cluster)


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
    joint = JointPlans(
        Groups.of(fusible, np.arange(fusible.num_units, dtype=np.int32)),
        ("devices", "priorities", "fusion"),
        4,
    )
    placement = fusible.everything_on(0)
    few, few_s = improved_levels(joint, placement, 4, seed=0)
    more, more_s = improved_levels(joint, placement, 60, seed=0)
    np.testing.assert_array_equal(few[1], joint.legal[1, :, 1])  # all that can be is fused
    assert more_s <= few_s and more.shape == few.shape
