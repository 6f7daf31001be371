"""A placement is written into its own graph, and into no other."""

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
from tf_placer.runtime.audit import written_order
from tf_placer.transform.order import order_edges


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


def test_an_order_becomes_control_inputs_after_the_others(item: Item, placement: Placement) -> None:
    placement = Placement(placement.problem, np.zeros(placement.problem.num_units))
    order = np.random.default_rng(0).permutation(placement.problem.num_ops)
    ordered = dataclasses.replace(placement, priority_of_op=order)
    # On one device any order takes as long; this one is of what ends late, so peaks are higher without it.
    edges = order_edges(ordered, item)
    placed, plain = apply_placement(item, ordered), apply_placement(item, placement)
    names = item.index.names
    assert sorted(written_order(plain, placed)) == sorted((names[a], names[b]) for a, b in edges.tolist())
    for one, other in zip(placed.node, plain.node, strict=True):
        added = [text for text in one.input if text not in other.input]
        assert list(one.input) == [*other.input, *added] and all(text.startswith("^") for text in added)
        del one.input[len(other.input) :]
    assert placed == plain
    nothing = dataclasses.replace(placement, priority_of_op=np.zeros(placement.problem.num_ops))
    assert apply_placement(item, nothing) == plain


def test_clusters_that_are_not_legal_are_refused(item: Item, placement: Placement) -> None:
    decided = dataclasses.replace(placement, cluster_of_op=np.arange(placement.problem.num_ops))
    with pytest.raises(InputError, match="cannot be in cluster"):
        apply_placement(item, decided)


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
