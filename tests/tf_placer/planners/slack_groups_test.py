"""Min-cut parts are split by what can wait."""

from __future__ import annotations

import numpy as np

from tests.tf_placer.problem.small_problems import small_cluster
from tf_placer.planners.slack_groups import slack_groups, unit_slack
from tf_placer.problem.problem import Problem


def _side_branch() -> Problem:
    """0 -> 1 -> 2 of 100 ns each, and 3, of 40 ns, which only waits for 0."""
    cost = np.array([100, 100, 100, 40])
    edges = np.array([[0, 1], [1, 2], [0, 3]], np.int32)
    return Problem.from_arrays(
        compute_ns=np.stack([cost, cost], axis=1),
        edges=edges,
        edge_bytes=np.full(3, 8),
        resident_bytes=np.zeros(4, np.int64),
        output_bytes=np.zeros(4, np.int64),
        allowed=np.ones((4, 2), bool),
        cluster=small_cluster(2),
    )


def test_slack_is_a_share_of_the_critical_path() -> None:
    # The path is 300 ns; through op 3 it is 100 + 40, so that it could wait 160.
    np.testing.assert_allclose(unit_slack(_side_branch()), [0, 0, 0, 160 / 300])


def test_what_can_wait_is_a_group_of_its_own() -> None:
    assert slack_groups(_side_branch(), 1).tolist() == [0, 0, 0, 1]
    assert slack_groups(_side_branch(), 1, classes=()).tolist() == [0, 0, 0, 0]
    assert slack_groups(_side_branch(), 4).tolist() == [0, 1, 2, 3]
