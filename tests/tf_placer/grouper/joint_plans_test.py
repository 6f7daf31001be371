"""Levels of groups become priorities and clusters of ops, and neutral ones decide nothing."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.base.arguments import InputError
from tf_placer.grouper.groups import ordered_groups
from tf_placer.grouper.joint_plans import TASKS, JointPlans

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
    with pytest.raises(
        InputError, match=r"^tasks is devices,fusion, and 'arrays' has no op .*; leave fusion out$"
    ):
        plans_of(("devices", "fusion"), BARE)
