"""The layers of ops whose names say none, from the ops that they read and feed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.problem.name_scopes import Scope


def layer_of_neighbours(given: Sequence[Scope], producer: np.ndarray, consumer: np.ndarray) -> list[Scope]:
    """The layer of each op: what is given, or what all that it reads agree on, or else all that it feeds.

    An op that nothing leads to from a layer, such as a constant, does not disagree with one.

    Args:
      given: [N] layers, () where the name says none; ops in topological order.
      producer, consumer: [E] edges.

    Returns:
      [N] layers, () where neighbours disagree or there are none.
    """
    found = list(given)
    edges = list(zip(producer.tolist(), consumer.tolist(), strict=True))
    _spread(found, sorted(edges))
    _spread(found, sorted(((b, a) for a, b in edges), reverse=True))
    return found


def _spread(found: list[Scope], edges: Sequence[tuple[int, int]]) -> None:
    """Gives ops without layer the one that all edges to them agree on; all edges to an op come before those from it."""
    offered: dict[int, Scope | None] = {}
    for source, target in edges:
        layer = found[source] or offered.get(source)
        if source in offered and not found[source]:
            found[source] = layer or ()
        if layer and not found[target] and offered.setdefault(target, layer) != layer:
            offered[target] = None  # they disagree
    for op, layer in offered.items():
        found[op] = found[op] or layer or ()
