"""Scotch as a planner: cheap cuts, shares by speed, and one line where it is missing."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.planners.chains import two_chains
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.planners.partitioners import mincut, scotch, static_mapping, why_missing
from tf_placer.problem.unit_graph import unit_graph

installed = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


@installed
def test_chains_that_share_nothing_are_a_part_each():
    (row,) = scotch(two_chains([10] * 24))
    assert len(set(row[:12].tolist())) == len(set(row[12:].tolist())) == 1
    assert row[0] != row[12]


@installed
def test_a_device_of_a_third_of_the_speed_gets_a_fourth():
    # Speeds 1 and 1/3: 30 and 10 of 40 ops, where the program may be 5 % of all off.
    problem = problem_of([[10, 30]] * 40, [(i, i + 1) for i in range(39)], 5)
    (row,) = scotch(problem)
    assert abs(np.count_nonzero(row == 1) - 10) <= 2


@installed
def test_only_scotch_uses_the_cpu():
    cluster = small_cluster(3)
    cpu = dataclasses.replace(cluster.devices[0], type="CPU")
    problem = problem_of(
        [10] * 30, [], cluster=dataclasses.replace(cluster, devices=(cpu, *cluster.devices[1:]))
    )
    assert np.unique(scotch(problem)).tolist() == [0, 1, 2]
    assert np.unique(mincut(problem)).tolist() == [1, 2]


@installed
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
