"""A placement is written into its own graph, and into no other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.rewrite import apply_placement


@pytest.fixture(scope="module")
def item() -> Item:
    return workloads.build("dense_small")


@pytest.fixture
def placement(item: Item) -> Placement:
    problem = analytic_problem(item, Cluster.logical(3))
    return Placement(problem, np.random.default_rng(0).integers(3, size=problem.num_units))


def test_every_op_gets_its_units_device(item: Item, placement: Placement) -> None:
    placed = apply_placement(item, placement)
    names = [device.name for device in placement.problem.cluster.devices]
    wanted = [names[placement.device_of_unit[unit]] for unit in placement.problem.unit_of_op]
    assert [node.device for node in placed.node] == wanted
    assert len(set(wanted)) == 3  # else the comparison says little


@pytest.mark.parametrize(("field", "why"), [("priority_of_op", "executor takes ready ops")])
def test_what_no_graph_can_say_yet_is_refused(item: Item, placement: Placement, field: str, why: str) -> None:
    decided = dataclasses.replace(placement, **{field: np.arange(placement.problem.num_ops)})
    with pytest.raises(
        InputError, match=f"{field} is decided, but the runtime does not heed it yet: .*{why}"
    ):
        apply_placement(item, decided)
    nothing = dataclasses.replace(placement, priority_of_op=np.zeros(placement.problem.num_ops))
    assert apply_placement(item, nothing) == apply_placement(item, placement)


def test_the_item_is_left_alone(item: Item, placement: Placement) -> None:
    before = item.graph_def.SerializeToString(deterministic=True)
    placed = apply_placement(item, placement)
    for node in placed.node:
        node.device = ""
    assert item.graph_def.SerializeToString(deterministic=True) == before
    assert placed.SerializeToString(deterministic=True) == before


def test_a_placement_for_another_graph_is_refused(placement: Placement) -> None:
    other = workloads.build("dense_small", layers=4)
    with pytest.raises(
        InputError, match=r"placement is for 'dense_small' .* search a placement for this item"
    ):
        apply_placement(other, placement)
