"""Partitions by METIS and Scotch keep chains whole and give devices their shares."""

import numpy as np
import pytest

from tests.tf_placer.planners.chains import two_chains
from tests.tf_placer.planners.clusters_by_type import cluster_of
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.planners.partitioners import (
    accelerators,
    metis,
    mincut,
    scotch,
    static_mapping,
    usable_devices,
    why_missing,
)
from tf_placer.problem.unit_graph import unit_graph

INSTALLED = pytest.mark.skipif(bool(why_missing()), reason=why_missing())
BOTH = pytest.mark.parametrize("planner", [metis, pytest.param(scotch, marks=INSTALLED)])


@BOTH
def test_chains_that_share_nothing_are_a_part_each(planner):
    (row,) = planner(two_chains([10] * 24))
    # 12 ops of 10 ns a device, and no edge is cut.
    assert len(set(row[:12].tolist())) == len(set(row[12:].tolist())) == 1
    assert row[0] != row[12]


@BOTH
def test_a_device_of_a_third_of_the_speed_gets_a_fourth(planner):
    # Every op takes 30 on device 1 and 10 on device 0: speeds 1 and 1/3, so 30 and 10 of 40 ops. METIS may be 3 % off
    # and Scotch 5 % of all, and a chain is halved in whole ops.
    (row,) = planner(problem_of([[10, 30]] * 40, [(i, i + 1) for i in range(39)], 5))
    assert abs(np.count_nonzero(row == 1) - 10) <= 2


def test_cpus_are_left_out_once_where_there_is_anything_else():
    problem = problem_of([10] * 30, [], cluster=cluster_of("CPU", "GPU", "GPU"))
    assert accelerators(problem).tolist() == [1, 2] and usable_devices(problem).tolist() == [0, 1, 2]
    assert [np.unique(row).tolist() for row in metis(problem)] == [[1, 2], [0, 1, 2]]
    only_cpus = problem_of([10], [], cluster=cluster_of("CPU", "CPU", "CPU"))
    assert accelerators(only_cpus).tolist() == [0, 1, 2]


@INSTALLED
def test_only_scotch_uses_the_cpu():
    problem = problem_of([10] * 30, [], cluster=cluster_of("CPU", "GPU", "GPU"))
    assert np.unique(scotch(problem)).tolist() == [0, 1, 2]
    assert np.unique(mincut(problem)).tolist() == [1, 2]


@INSTALLED
@pytest.mark.parametrize("device", [0, 1])
def test_units_without_a_choice_are_known_to_the_program(device):
    # Its own answer, before anything illegal is moved: 240 ns are shared as 120 and 120, 5 % of all may be off.
    allowed = np.ones((24, 2), bool)
    allowed[5, 1 - device] = allowed[17, device] = False
    problem = two_chains([10] * 24, allowed=allowed)
    part = static_mapping(problem, unit_graph(problem), np.arange(2), np.full(2, 0.5))
    assert (part[5], part[17]) == (device, 1 - device)
    assert abs(np.count_nonzero(part == device) - 12) <= 1


def test_without_the_program_it_is_one_line(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        InputError, match=r"scotch_gmap is not installed.*; give it by `apt-get install scotch`"
    ):
        scotch(two_chains([10] * 24))
