"""The layers of a program: which op belongs to which, by name scopes, by variables, and by what feeds what."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from colocation.op_facts import VARIABLES
from tf_placer.problem.layer_of_neighbours import layer_of_neighbours
from tf_placer.problem.name_scopes import Scope, below, scopes_of
from tf_placer.problem.problem import Problem
from tf_placer.problem.variable_scopes import VariableScopes, layer_names, variable_scopes

NO_LAYER = "(no layer)"
"""What ops are said to be in that no name and no neighbour gives a layer; no name of TensorFlow's looks like it."""

ROOT = -1
_UPDATES = ("Assign", "ResourceApply", "ResourceSparseApply", "Apply", "SparseApply", "ResourceScatter")


@dataclasses.dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a program as a tree, and the layer of each op.

    Attributes:
      names: [L] paths such as ``"encoder/layer_1"``; ``NO_LAYER`` for ops without one. A layer stands before those
        inside it; beside that, in the order of their first ops.
      parent: [L] int32, the layer that each is inside of; ``ROOT`` of those that are in none.
      layer_of_op: [N] int32. An op of a layer that has others inside it may be in none of these.
    """

    names: tuple[str, ...]
    parent: np.ndarray
    layer_of_op: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    @functools.cached_property
    def children(self) -> list[list[int]]:
        """[L + 1] the layers right inside each one; the last, at ``ROOT``, is of those that are in none."""
        found: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for layer, parent in enumerate(self.parent.tolist()):
            found[parent].append(layer)
        return found

    def inside(self, layer: int) -> np.ndarray:
        """[N] bool: the ops of a layer and of all layers inside it."""
        inside: np.ndarray = self.is_inside(layer)[self.layer_of_op]
        return inside

    def is_inside(self, layer: int) -> np.ndarray:
        """[L] bool: the layer itself and all inside it."""
        is_inside = np.zeros(len(self), bool)
        is_inside[layer] = True
        for one in range(layer + 1, len(self)):
            is_inside[one] = self.parent[one] != ROOT and is_inside[self.parent[one]]
        return is_inside

    def sums(self, per_op: np.ndarray) -> np.ndarray:
        """[L, ...] what the ops of each layer, and of all inside it, have together of ``per_op`` [N, ...]."""
        total = np.zeros((len(self), *per_op.shape[1:]), per_op.dtype)
        np.add.at(total, self.layer_of_op, per_op)
        for layer in range(len(self) - 1, -1, -1):
            if self.parent[layer] != ROOT:
                total[self.parent[layer]] += total[layer]
        return total


def layers_of(problem: Problem) -> Layers:
    """Finds the layers of a program: name scopes as deep as variables tell layers apart.

    A scope is a layer, unless variables are read in scopes inside it: then these and their siblings are the layers, and
    it is around them. In a program that reads no variables every scope is one. Gradients are in the layer of what they
    are the gradient of; variables in the layer that reads them, with what else takes them and has no layer. What is
    named after an optimizer, a scope that writes variables of another layer, and what has no scope at all is in the
    layer of all that it reads, or else of all that it feeds; where these disagree, in one of the optimizer's own name,
    or in ``NO_LAYER``.

    Args:
      problem: of any graph; one with names that have no scopes has one layer, ``NO_LAYER``.
    """
    scopes = scopes_of(problem.op_names, problem.op_types)
    edges = problem.op_graph
    takers: list[list[int]] = [[] for _ in problem.op_names]
    for producer, consumer in zip(edges.producer.tolist(), edges.consumer.tolist(), strict=True):
        takers[producer].append(consumer)
    readers = {op: takers[op] for op, kind in enumerate(problem.op_types) if kind in VARIABLES}
    users = {op: _users(op, takers, problem.op_names) for op in readers}
    variables = variable_scopes(users, scopes, problem.op_names)
    scopes = [variables.home.get(op, scope) for op, scope in enumerate(scopes)]
    around = below(filter(None, variables.home.values()) if any(variables.home.values()) else scopes)
    layer_of_op = [_outermost_layer(scope, around) for scope in scopes]
    updating = _updating(readers, layer_of_op, problem.op_types)
    given: list[Scope] = [() if layer in updating else layer for layer in layer_of_op]
    for variable, ops in readers.items():  # they share a device with it
        for op in ops:
            given[op] = given[op] or given[variable]
    found = layer_of_neighbours(given, edges.producer, edges.consumer)
    final = [one or layer for one, layer in zip(found, layer_of_op, strict=True)]
    return _as_tree(final, variables)


def _users(variable: int, takers: Sequence[Sequence[int]], names: Sequence[str]) -> list[int]:
    """The ops that take a variable or its value, behind those that are named after it, ascending."""
    found, pending = set(), [variable]
    while pending:
        for op in takers[pending.pop()]:
            if names[op].startswith(f"{names[variable]}/"):
                pending.append(op)
            else:
                found.add(op)
    return sorted(found)


def _outermost_layer(scope: Scope, around: set[Scope]) -> Scope:
    depth = next((d for d in range(1, len(scope) + 1) if scope[:d] not in around), len(scope))
    return scope[:depth]


def _updating(
    readers: dict[int, list[int]], layer_of_op: Sequence[Scope], types: Sequence[str]
) -> set[Scope]:
    """Layers that write variables of others that are neither in them nor around them."""
    found = set()
    for variable, ops in readers.items():
        home = layer_of_op[variable]
        writing = {layer_of_op[op] for op in ops if types[op].startswith(_UPDATES)}
        found |= {layer for layer in writing if layer and home and not _nested(home, layer)}
    return found


def _nested(a: Scope, b: Scope) -> bool:
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def _as_tree(layer_of_op: Sequence[Scope], variables: VariableScopes) -> Layers:
    used = dict.fromkeys(layer_of_op)
    called = layer_names({*used, *below(used)} - {()}, variables.named_by)
    named = [called[scope] for scope in layer_of_op]
    inside: defaultdict[Scope, dict[Scope, None]] = defaultdict(dict)
    for name in dict.fromkeys(named):
        for depth in range(1, len(name) + 1):
            inside[name[: depth - 1]].setdefault(name[:depth])
    order: list[Scope] = []
    pending = [*reversed(inside[()])]
    while pending:
        order.append(pending.pop())
        pending += reversed(inside[order[-1]])
    position = {name: layer for layer, name in enumerate(order)}
    names = ["/".join(name) for name in order]
    if () in used:
        position[()] = len(names)
        names.append(NO_LAYER)
        order.append(())
    parent = [position[name[:-1]] if len(name) > 1 else ROOT for name in order]
    return Layers(
        tuple(names), np.array(parent, np.int32), np.array([position[name] for name in named], np.int32)
    )
