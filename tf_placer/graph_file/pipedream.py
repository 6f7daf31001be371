"""PipeDream's graph.txt (Narayanan et al. 2019): layers with forward and backward times."""

from __future__ import annotations

import re

from tf_placer.errors import InputError
from tf_placer.graph_file.checked_values import LONGEST_NS, Entry
from tf_placer.graph_file.profiled_graph import Edge, Node, ProfiledGraph

_NODE = re.compile(r"(\S+) -- (.*) -- (.*)")
_EDGE = re.compile(r"\t(\S+) -- (\S+)")
_NS = 1e6  # of a millisecond


def read_pipedream(file: str, graph_name: str, text: str) -> ProfiledGraph:
    """A training step of the layers in a file.

    A layer is two ops that share a device, ``NAME/forward`` and ``NAME/backward``: its parameters stay with them. An
    edge carries the activation of its source forward, and as many bytes of gradient backward. Times are milliseconds
    on a GPU.

    Raises:
      InputError: a line that is no layer and no edge, or an edge of no layer.
    """
    nodes: list[Node] = []
    edges: list[Edge] = []
    activation: dict[str, int] = {}
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{file}: line {number}"
        edge, node = _EDGE.fullmatch(line.rstrip()), _NODE.fullmatch(line.rstrip())
        if edge:
            pairs.append((edge[1], edge[2]))
        elif node:
            name, values = node[1], Entry(where, _values(where, node[3]))
            activation[name] = values.scaled("activation_size", 1.0)
            forward = {"GPU": values.scaled("forward_compute_time", _NS, most=LONGEST_NS)}
            backward = {"GPU": values.scaled("backward_compute_time", _NS, most=LONGEST_NS)}
            kind, size = node[2].partition("(")[0], activation[name]
            nodes += [
                Node(f"{name}/forward", forward, values.scaled("parameter_size", 1.0), size, name, kind),
                Node(f"{name}/backward", backward, 0, 0, name, kind),
            ]
            edges.append(Edge(f"{name}/forward", f"{name}/backward", size, "activation"))
        elif line.strip():
            raise InputError(
                f"{where} is no layer and no edge; give 'NODE -- LAYER -- ...' or '<tab>NODE -- NODE'"
            )
    for source, target in pairs:
        for name in (source, target):
            if name not in activation:
                raise InputError(
                    f"{file}: edge {source} -- {target} names {name}, which is not there; give its line"
                )
        size = activation[source]
        edges.append(Edge(f"{source}/forward", f"{target}/forward", size, "activation"))
        edges.append(Edge(f"{target}/backward", f"{source}/backward", size))
    return ProfiledGraph(file, graph_name, tuple(nodes), tuple(edges))


def _values(where: str, text: str) -> dict[str, float]:
    """``name=number`` parts; the numbers of a list [a; b] add up."""
    found = {}
    for part in text.split(", "):
        name, _, value = part.partition("=")
        try:
            found[name] = sum(float(one) for one in value.strip("[]").split(";"))
        except ValueError:
            raise InputError(f"{where}: {name} is {value!r}; give a number") from None
    return found
