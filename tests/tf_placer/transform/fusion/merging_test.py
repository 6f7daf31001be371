"""Merging by priority gives legal clusters, and what has a higher priority is merged first."""

import dataclasses

import numpy as np
import pytest

from tests.equivalence.operations import program_of_seed
from tests.equivalence.pairs import item_of, subject_of
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.placement import NO_CLUSTER
from tf_placer.transform.fusion.clusters import check_clusters
from tf_placer.transform.fusion.costs import merged_by_priority


def diamond(can=(True,) * 4):
    """0 -> 1 -> 3 and 0 -> 2 -> 3, a kernel each."""
    problem = problem_of([1000] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)], 8)
    return dataclasses.replace(problem, fusible_of_op=np.array(can))


def merged(problem, priorities, devices=(0, 0, 0, 0)):
    return merged_by_priority(problem, np.array(devices), np.array(priorities)).tolist()


def test_any_priorities_on_any_devices_become_legal_clusters():
    fused = 0
    for seed in range(8):
        item = item_of(subject_of(program_of_seed(seed), gradients=False))
        if not item.index.num_ops:
            continue
        problem, rng = (
            build_problem(item, Cluster.preset("k40x2"), costs="analytic"),
            np.random.default_rng(seed),
        )
        device_of_op = rng.integers(2, size=problem.num_ops)
        names = [problem.cluster.devices[device].name for device in device_of_op]
        priorities = rng.integers(4, size=problem.num_ops)
        clusters = merged_by_priority(problem, device_of_op, priorities)
        check_clusters(item, clusters, dict(zip(item.index.names, names, strict=True)))
        assert not (priorities[clusters != NO_CLUSTER] == 0).any()
        assert (np.unique(clusters) >= NO_CLUSTER).all()
        fused += int((clusters != NO_CLUSTER).sum())
    assert fused > 20


def test_all_of_one_priority_are_one_cluster_where_nothing_is_between():
    assert merged(diamond(), [1] * 4) == [0] * 4
    assert merged(diamond(), [0] * 4) == [-1] * 4


def test_a_cluster_is_on_one_device():
    # 0 -> 1 on one and 2 -> 3 on the other: each pair is a cluster, and 3 reads of the first.
    assert merged(diamond(), [1] * 4, devices=[0, 0, 1, 1]) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        # 0 and 1 first: with 3 there would be a way out of the cluster and back, through 2.
        ([2, 2, 1, 1], [0, 0, -1, -1]),
        ([1, 2, 1, 2], [-1, 0, -1, 0]),
    ],
)
def test_what_has_a_higher_priority_is_merged_first(priorities, expected):
    assert merged(diamond(can=(True, True, False, True)), priorities) == expected


def test_one_kernel_is_no_cluster():
    free = dataclasses.replace(diamond(), compute_ns=np.array([[1000, 1000], [0, 0], [0, 0], [0, 0]]))
    assert merged(free, [1] * 4) == [-1] * 4
