"""A placement written into the graph it was made for."""

from __future__ import annotations

import tensorflow as tf

from tf_placer.graph.item import Item
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.rewrite import rewrite


def apply_placement(item: Item, placement: Placement) -> tf.compat.v1.GraphDef:
    """Returns the item's graph with the placement's device on every node.

    Args:
      item: the program; its ``graph_def`` is left alone.
      placement: one for a problem that was built from this item.

    Raises:
      InputError: the placement was made for another graph, or decides more than devices, which no graph can say yet.
    """
    return rewrite(item, placement)
