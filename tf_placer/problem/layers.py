"""The layers of a program and the ops of each, by name scopes, variables and edges; plans of layers."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from colocation.op_facts import VARIABLES
from tf_placer.base.arguments import InputError, nearest
from tf_placer.graph.program import TRIP
from tf_placer.problem.problem import Problem

# Name scopes: the part of an op's name that its program gave, without TensorFlow's prefixes and suffixes.

Scope = tuple[str, ...]

# TensorFlow's prefixes of the names of gradients and of ops whose call was inlined.
_PREFIX = re.compile(r"(gradient_tape|gradients|grad_ys|(Stateful)?PartitionedCall)(_\d+)?")
_COUNT = re.compile(r"_\d+\Z")
_GRADIENT = "_grad"


def scopes_of(names: Sequence[str], types: Sequence[str]) -> list[Scope]:
    """The scope of each op: ``a/dense/MatMul/ReadVariableOp`` is in ``("a", "dense")``, as is its gradient.

    A part of a name that is an op's own, or that TensorFlow made of a type of op, is no scope, nor is what follows it.

    Args:
      names: [N] of the ops.
      types: [N] of the ops; "" where they are not known.
    """
    known: dict[str, Scope] = {}
    ops, kinds = set(names), set(types) - {""}
    return [_scope(name.rpartition("/")[0], ops, kinds, known) for name in names]


def without_count(part: str) -> str:
    """``dense_1`` as ``dense``: what TensorFlow counted up, or a program itself."""
    return _COUNT.sub("", part)


def below(scopes: Iterable[Scope]) -> set[Scope]:
    """All scopes that hold another one of these."""
    return {scope[:depth] for scope in scopes for depth in range(1, len(scope))}


def _scope(path: str, ops: set[str], kinds: set[str], known: dict[str, Scope]) -> Scope:
    if path not in known:
        parts = path.split("/") if path else []
        first = next((i for i, part in enumerate(parts) if not _PREFIX.fullmatch(part)), len(parts))
        end = next(
            (i for i in range(first, len(parts)) if _is_op(parts[: i + 1], first, ops, kinds)), len(parts)
        )
        known[path] = tuple(parts[first:end])
    return known[path]


def _is_op(parts: Sequence[str], first: int, ops: set[str], kinds: set[str]) -> bool:
    """True if ``parts``, or all but the first of them, name an op, or if the last is a type of ops."""
    last = parts[-1].removesuffix(_GRADIENT)
    names = ("/".join(parts), "/".join((*parts[first:-1], last)))
    return without_count(last) in kinds or any(name in ops for name in names)


# Layers of ops whose names say none, from the ops that they read and feed.


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


# Scopes that are layers, and their names: both follow from the variables that are read in them.


@dataclasses.dataclass(frozen=True)
class VariableScopes:
    """Scopes that the variables of a program belong to.

    Attributes:
      home: variable's op -> scope of the layer that it belongs to; () where nothing says so.
      named_by: scope of a layer -> scope of the variables that it was found by, which has the name that the layer was
        given: Keras enters each layer's scope twice, and TensorFlow calls the second ``dense_1``.
    """

    home: Mapping[int, Scope]
    named_by: Mapping[Scope, Scope]


def variable_scopes(
    readers: Mapping[int, Sequence[int]], scopes: Sequence[Scope], names: Sequence[str]
) -> VariableScopes:
    """Finds the layer of each variable.

    It is the scope of a reader that is called as the variable's own; else the scope where it is read first; else its
    own. Where one scope has several variables of one name, counted, they are of several layers, and what these are is
    told by where they are read.

    Args:
      readers: variable's op -> ops that take it, in the order of the graph.
      scopes: [N] of each op.
      names: [N] of each op.
    """
    called = Counter((scopes[variable], without_count(names[variable])) for variable in readers)
    home: dict[int, Scope] = {}
    named_by: dict[Scope, Scope] = {}
    for variable, ops in readers.items():
        own = scopes[variable]
        read_in = list(dict.fromkeys(scope for op in ops if (scope := scopes[op])))
        matches = {scope: match for scope in read_in if (match := _called_alike(own, scope))}
        for layer in matches.values():
            named_by.setdefault(layer, own)
        is_of_several = called[own, without_count(names[variable])] > 1
        home[variable] = next(iter((*(matches if is_of_several else matches.values()), *read_in)), own)
    return VariableScopes(home, named_by)


def _called_alike(own: Scope, scope: Scope) -> Scope:
    """The beginning of ``scope`` that ends as the variable's own does, or as close to that as there is."""
    for part in reversed(own):
        for depth in range(len(scope), 0, -1):
            if scope[depth - 1] == part or _counted(scope[depth - 1], part):
                return scope[:depth]
    return ()


def _counted(part: str, name: str) -> bool:
    return part != name and without_count(part) == name


def layer_names(layers: Iterable[Scope], named_by: Mapping[Scope, Scope]) -> dict[Scope, Scope]:
    """Names of layers: as their variables say and, where those say it of one, of its siblings too.

    A layer without variables loses its count only where a sibling's variables show that Keras counted, and where no
    sibling would be called the same; so does what is around a layer that was counted. Layers that read the same
    variables, as a layer that is called twice does, are one.

    Args:
      layers: scopes of layers and all scopes around them.
      named_by: of ``VariableScopes``.
    """
    children: defaultdict[Scope, list[Scope]] = defaultdict(list)
    for scope in sorted(layers, key=len):
        children[scope[:-1]].append(scope)
    counted = {layer for layer, own in named_by.items() if own and _counted(layer[-1], own[-1])}
    told = {layer[:d] for layer, own in named_by.items() for d in range(1, len(layer)) if layer[d - 1] in own}
    around = below(counted) - told
    found: dict[Scope, Scope] = {(): ()}
    for parent, scopes in children.items():
        is_counted = parent in counted or bool(counted.intersection(scopes))
        wanted = {
            scope: without_count(scope[-1]) if is_counted or scope in around else scope[-1]
            for scope in scopes
        }
        wanted |= {scope: named_by[scope][-1] for scope in counted.intersection(scopes)}
        claims = Counter({(name, named_by.get(scope, scope)) for scope, name in wanted.items()})
        rivals = Counter(name for name, _ in claims)
        for scope in scopes:
            name = wanted[scope] if rivals[wanted[scope]] == 1 else scope[-1]
            found[scope] = (*found[parent], name)
    return found


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
    names = problem.op_names
    if problem.splitting is not None:  # trips of a loop that is written out have the scopes of its body
        names = tuple(TRIP.sub("", name) for name in names)
    scopes = scopes_of(names, problem.op_types)
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


# Plans of layers: a few lines of layer and device, expanded to every unit.

NO_LINE = -1


def layer_of_unit(problem: Problem, layers: Layers) -> np.ndarray:
    """[U] int32: the layer that most of a unit's ops are of; of equals, the one that stands first.

    Ops that must share a device may be of several layers. They go where this one goes. Costs have no say, so that a
    plan means the same whatever its ops cost.
    """
    pairs, count = np.unique(
        np.stack([problem.unit_of_op, layers.layer_of_op], axis=1), axis=0, return_counts=True
    )
    order = np.lexsort((pairs[:, 1], -count, pairs[:, 0]))
    units, first = np.unique(pairs[order, 0], return_index=True)
    found = np.zeros(problem.num_units, np.int32)
    found[units] = pairs[order][first, 1]
    return found


def with_units_whole(problem: Problem, layers: Layers) -> Layers:
    """The layers with every op in the one that its unit goes with, which may leave some without ops."""
    return dataclasses.replace(layers, layer_of_op=layer_of_unit(problem, layers)[problem.unit_of_op])


def layer_lines(
    problem: Problem, layers: Layers, device_of_unit: np.ndarray
) -> tuple[dict[str, str], dict[str, str]]:
    """The fewest lines that say a placement, where a layer without one is where the layer around it is.

    Args:
      problem: what is placed.
      layers: of it.
      device_of_unit: [U].

    Returns:
      Layer -> device; and op -> device, one op of each unit that is not where its layer is.
    """
    home = layer_of_unit(problem, layers)
    elsewhere = np.zeros((len(layers), problem.num_devices), np.int64)
    np.add.at(elsewhere, home, 1)
    np.subtract.at(elsewhere, (home, device_of_unit), 1)
    # [L, D] lines that a layer and those inside it need, where it is there: one more where that is not what is around.
    needed = elsewhere
    for layer in range(len(layers) - 1, -1, -1):
        if layers.parent[layer] != ROOT:
            needed[layers.parent[layer]] += np.minimum(needed[layer], 1 + needed[layer].min())
    names = [device.name for device in problem.cluster.devices]
    lines: dict[str, str] = {}
    device_of_layer = np.zeros(len(layers), np.int32)
    num_ops = with_units_whole(problem, layers).sums(np.ones(problem.num_ops, np.int64))
    for layer, around in enumerate(layers.parent.tolist()):
        best = int(needed[layer].argmin())
        if around != ROOT and needed[layer, device_of_layer[around]] <= 1 + needed[layer, best]:
            device_of_layer[layer] = device_of_layer[around]
        elif num_ops[layer]:
            device_of_layer[layer] = best
            lines[layers.names[layer]] = names[best]
    units, first_op = np.unique(problem.unit_of_op, return_index=True)
    apart = device_of_unit[units] != device_of_layer[home[units]]
    ops = np.sort(first_op[apart]).tolist()
    return lines, {problem.op_names[op]: names[device_of_unit[problem.unit_of_op[op]]] for op in ops}


def device_of_lines(
    problem: Problem, layers: Layers, lines: Mapping[str, str], source: str, ignore_unknown: bool = False
) -> np.ndarray:
    """[U] int32: the device of each unit by the lines of a plan, ``NO_LINE`` where none is for it.

    Args:
      problem: what is placed.
      layers: of it.
      lines: layer -> device.
      source: where they are from, for messages.
      ignore_unknown: leave out lines of layers that are not there.

    Raises:
      InputError: there is no such layer or device.
    """
    column = {device.name: d for d, device in enumerate(problem.cluster.devices)}
    position = {name: layer for layer, name in enumerate(layers.names)}
    given: dict[int, int] = {}
    for name, device in lines.items():
        if name in position and device not in column:
            raise InputError(
                f"{source}: layer {name!r} is on {device!r}, which cluster {problem.cluster.name!r} lacks; it has "
                f"{', '.join(column)}"
            )
        if name in position:
            given[position[name]] = column[device]
        elif not ignore_unknown:
            raise InputError(
                f"{source} has a line of layer {name!r}, which is not there; {nearest(name, layers.names)}"
            )
    device_of_layer = np.full(len(layers), NO_LINE, np.int32)
    for layer, around in enumerate(layers.parent.tolist()):
        inherited = NO_LINE if around == ROOT else int(device_of_layer[around])
        device_of_layer[layer] = given.get(layer, inherited)
    return device_of_layer[layer_of_unit(problem, layers)]
