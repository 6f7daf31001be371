"""METIS as a planner: shares by speed, all devices and the accelerators."""

import dataclasses

import numpy as np

from tests.tf_placer.planners.chains import two_chains
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.planners.partitioners import accelerators, metis, usable_devices


def test_chains_that_share_nothing_are_a_part_each():
    (row,) = metis(two_chains([10] * 24))
    # 12 ops of 10 ns a device, and no edge is cut.
    assert len(set(row[:12].tolist())) == len(set(row[12:].tolist())) == 1
    assert row[0] != row[12]


def test_a_device_of_a_third_of_the_speed_gets_a_fourth():
    # Every op takes 30 on device 1 and 10 on device 0: speeds 1 and 1/3, so 30 and 10 of 40 ops.
    problem = problem_of([[10, 30]] * 40, [(i, i + 1) for i in range(39)], 5)
    (row,) = metis(problem)
    assert abs(np.count_nonzero(row == 1) - 10) <= 2  # METIS may be 3 % off, and halves a chain in whole ops


def test_cpus_are_left_out_once_where_there_is_anything_else():
    cluster = small_cluster(3)
    cpu = dataclasses.replace(cluster.devices[0], type="CPU")
    problem = problem_of(
        [10] * 30, [], cluster=dataclasses.replace(cluster, devices=(cpu, *cluster.devices[1:]))
    )
    assert accelerators(problem).tolist() == [1, 2] and usable_devices(problem).tolist() == [0, 1, 2]
    assert [np.unique(row).tolist() for row in metis(problem)] == [[1, 2], [0, 1, 2]]
    only_cpus = dataclasses.replace(
        cluster, devices=tuple(dataclasses.replace(one, type="CPU") for one in cluster.devices)
    )
    assert accelerators(problem_of([10], [], cluster=only_cpus)).tolist() == [0, 1, 2]
