"""A placement written into the graph it was made for."""

from __future__ import annotations

import tensorflow as tf

from tf_placer import arguments
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.graph_def import place_graph


def apply_placement(item: Item, placement: Placement) -> tf.compat.v1.GraphDef:
    """Returns the item's graph with the placement's device on every node.

    Args:
      item: the program; its ``graph_def`` is left alone.
      placement: one for a problem that was built from this item.

    Raises:
      InputError: the placement was made for another graph.
    """
    check_made_for(item, placement)
    return place_graph(item.graph_def, placement.device_names)


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
