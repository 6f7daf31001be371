"""A plan written into a graph: the one way in which anything that is decided gets there."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from tf_placer import arguments
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.graph_def import place_graph

# What is decided -> why no graph says it yet.
_NOT_WRITTEN = {
    "priority_of_op": "TensorFlow's executor takes ready ops in an order of its own",
    "cluster_of_op": "no ops are fused",
}


def rewrite(
    item: Item, placement: Placement, device_of_op: Mapping[str, str] | None = None
) -> tf.compat.v1.GraphDef:
    """Returns the item's graph with all that a plan decides in it, or none.

    The stages, in order: devices (``place_graph``); control edges for an order of execution; fusion clusters. The last
    two are not there yet, so a plan that decides them is refused: half a plan must not pass for the whole.

    Args:
      item: the program; its ``graph_def`` is left alone.
      placement: one for a problem that was built from this item.
      device_of_op: op name -> device, where the plan's devices have other names or host ops go elsewhere; None: as the
        placement has it.

    Raises:
      InputError: the placement was made for another graph, or decides what cannot be written.
    """
    check_made_for(item, placement)
    check_can_be_written(placement.decisions)
    return place_graph(item.graph_def, placement.device_names if device_of_op is None else device_of_op)


def apply_placement(item: Item, placement: Placement) -> tf.compat.v1.GraphDef:
    """Returns the item's graph with the placement's device on every node.

    Args:
      item: the program; its ``graph_def`` is left alone.
      placement: one for a problem that was built from this item.

    Raises:
      InputError: the placement was made for another graph, or decides more than devices, which no graph can say yet.
    """
    return rewrite(item, placement)


def check_can_be_written(decisions: Decisions) -> None:
    """Raises InputError where a plan decides what ``rewrite`` does not write yet, and so no runtime heeds."""
    for plan in map(decisions.row, range(len(decisions))):
        for name, why in _NOT_WRITTEN.items():
            if getattr(plan, name) is not None:
                raise InputError(
                    f"{name} is decided, but the runtime does not heed it yet: {why}, and the graph is given devices "
                    "alone; leave it away, or ask the simulator"
                )


def check_placement(name: str, value: object) -> Placement:
    """``value``, when it is a placement; who gives a search's result is told where its placement is.

    Raises:
      InputError: it is something else.
    """
    hint = ".placement of it" if hasattr(value, "placement") else "a Placement, such as search(...).placement"
    return arguments.instance_of(name, value, Placement, f"give {hint}")


def check_made_for(item: Item, placement: Placement) -> None:
    """Raises InputError when a placement was made for another graph than the item's, or is none."""
    arguments.instance_of("item", item, Item, "give what Item.from_function or Item.from_saved_model returns")
    check_placement("placement", placement)
    problem = placement.problem
    if problem.fingerprint != item.fingerprint:
        raise InputError(
            f"the placement is for {problem.name!r} (fingerprint {problem.fingerprint[:12]}), but item "
            f"{item.name!r} has fingerprint {item.fingerprint[:12]}; search a placement for this item"
        )
