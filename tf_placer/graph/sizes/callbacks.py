"""Functions of Python inside of a graph, which shape inference must not call."""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import node_def_pb2


def keep_callbacks_from_running(nodes: Iterable[node_def_pb2.NodeDef]) -> None:
    """Has inference take each function of Python for one with side effects, which it does not call to know its value.

    Args:
      nodes: a copy that only inference sees; changed in place.
    """
    for node in nodes:
        if node.op == "PyFuncStateless":
            node.op = "PyFunc"
