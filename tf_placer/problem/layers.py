"""The layers of a program and the ops of each, by name scopes, variables and edges; plans of layers."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy.sparse

from colocation.op_facts import VARIABLES
from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.quantities import percentage
from tf_placer.problem.problem import Problem

Scope = tuple[str, ...]

# TensorFlow's prefixes of the names of gradients and of ops whose call was inlined.
_PREFIX = re.compile(r"(gradient_tape|gradients|grad_ys|(Stateful)?PartitionedCall)(_\d+)?")
_COUNT = re.compile(r"_\d+\Z")
# What comes before the name that an op has in the body of a loop, where the loop is written out.
_TRIP = re.compile(r"(?:.*/)?trip_\d+/")
_GRADIENT = "_grad"

NO_LAYER = "(no layer)"
"""What ops are said to be in that no name and no neighbour gives a layer; no name of TensorFlow's looks like it."""
ROOT = -1
_UPDATES = ("Assign", "ResourceApply", "ResourceSparseApply", "Apply", "SparseApply", "ResourceScatter")
NO_LINE = -1
MOST_ROWS = 30
_SEEN = 0.0005  # a share that is shown as more than nothing


def scopes_of(names: Sequence[str], types: Sequence[str]) -> list[Scope]:
    """The scope of each op: ``a/dense/MatMul/ReadVariableOp`` is in ``("a", "dense")``, as is its gradient.

    A part of a name that is an op's own, or that TensorFlow made of a type of op, is no scope, nor is what follows it.
    Unknown types are "".
    """
    scope_of_path: dict[str, Scope] = {}
    ops, kinds = set(names), set(types) - {""}
    scopes = []
    for name in names:
        path = name.rpartition("/")[0]
        if path not in scope_of_path:
            parts = path.split("/") if path else []
            begin = next((i for i, part in enumerate(parts) if not _PREFIX.fullmatch(part)), len(parts))
            end = begin
            while end < len(parts):
                # A scope ends at an op of this name, in its own scope or as a gradient, and at a type of ops.
                op_name = parts[end].removesuffix(_GRADIENT)
                in_scope = {"/".join(parts[: end + 1]), "/".join((*parts[begin:end], op_name))}
                if without_count(op_name) in kinds or in_scope & ops:
                    break
                end += 1
            scope_of_path[path] = tuple(parts[begin:end])
        scopes.append(scope_of_path[path])
    return scopes


def without_count(part: str) -> str:
    """``dense_1`` as ``dense``: what TensorFlow counted up, or a program itself."""
    return _COUNT.sub("", part)


def below(scopes: Iterable[Scope]) -> set[Scope]:
    """All scopes that hold another one of these."""
    return {scope[:depth] for scope in scopes for depth in range(1, len(scope))}


def layer_of_neighbours(given: Sequence[Scope], producer: np.ndarray, consumer: np.ndarray) -> list[Scope]:
    """The layer of each op: its own, or the common layer of all inputs, or of all consumers.

    An op that nothing leads to from a layer, such as a constant, does not disagree with one. Ops [N] are in topological
    order, edges are [E]; a layer is () where the name says none, or where neighbours disagree or there are none.
    """
    layers = list(given)
    edges = list(zip(producer.tolist(), consumer.tolist(), strict=True))
    for ordered in (sorted(edges), sorted(((b, a) for a, b in edges), reverse=True)):
        offered: dict[int, Scope | None] = {}  # None: edges disagree. Edges into an op precede edges out.
        for source, target in ordered:
            layer = layers[source] or offered.get(source)
            if source in offered and not layers[source]:
                layers[source] = layer or ()
            if layer and not layers[target] and offered.setdefault(target, layer) != layer:
                offered[target] = None
        for op, layer in offered.items():
            layers[op] = layers[op] or layer or ()
    return layers


def variable_scopes(
    readers: Mapping[int, Sequence[int]], scopes: Sequence[Scope], names: Sequence[str]
) -> tuple[dict[int, Scope], dict[Scope, Scope]]:
    """Finds the layer of each variable, () where nothing says so.

    It is the scope of a reader that is called as the variable's own; else the scope where it is read first; else its
    own. Where one scope has several variables of one name, counted, they are of several layers, and what these are is
    told by where they are read.

    ``readers`` are variable's op -> ops that take it, in the order of the graph.

    Returns:
      Variable's op -> scope of its layer; and scope of a layer -> scope of the variables by which the layer was found,
      with the name that the program gave it: Keras enters each layer's scope twice, and TensorFlow calls the second
      ``dense_1``.
    """
    called = Counter((scopes[variable], without_count(names[variable])) for variable in readers)
    home: dict[int, Scope] = {}
    named_by: dict[Scope, Scope] = {}
    for variable, ops in readers.items():
        variable_scope = scopes[variable]
        read_in = list(dict.fromkeys(scope for op in ops if (scope := scopes[op])))
        # The beginning of a scope that ends as the variable's own does, or as close to that as there is.
        matches: dict[Scope, Scope] = {}
        for scope in read_in:
            candidates = (
                scope[:depth]
                for part in reversed(variable_scope)
                for depth in range(len(scope), 0, -1)
                if part in (scope[depth - 1], without_count(scope[depth - 1]))
            )
            if match := next(candidates, ()):
                matches[scope] = match
                named_by.setdefault(match, variable_scope)
        is_of_several = called[variable_scope, without_count(names[variable])] > 1
        home[variable] = next(
            iter((*(matches if is_of_several else matches.values()), *read_in)), variable_scope
        )
    return home, named_by


def layer_names(layers: Iterable[Scope], named_by: Mapping[Scope, Scope]) -> dict[Scope, Scope]:
    """Names of layers as their variables say, applied to siblings too.

    A layer without variables loses its count only where a sibling's variables show that Keras counted, and where no
    sibling would be called the same; so does what is around a layer that was counted. Layers that read the same
    variables, as a layer that is called twice does, are one. ``layers`` has all scopes around layers, too.
    """
    children: defaultdict[Scope, list[Scope]] = defaultdict(list)
    for scope in sorted(layers, key=len):
        children[scope[:-1]].append(scope)
    counted = {
        layer
        for layer, variable_scope in named_by.items()
        if variable_scope and layer[-1] != variable_scope[-1] == without_count(layer[-1])
    }
    confirmed = {
        layer[:d]
        for layer, variable_scope in named_by.items()
        for d in range(1, len(layer))
        if layer[d - 1] in variable_scope
    }
    around = below(counted) - confirmed
    name_of: dict[Scope, Scope] = {(): ()}
    for parent, scopes in children.items():
        is_counted = parent in counted or bool(counted.intersection(scopes))
        proposed = {
            scope: without_count(scope[-1]) if is_counted or scope in around else scope[-1]
            for scope in scopes
        }
        proposed |= {scope: named_by[scope][-1] for scope in counted.intersection(scopes)}
        claims = Counter({(name, named_by.get(scope, scope)) for scope, name in proposed.items()})
        rivals = Counter(name for name, _ in claims)
        for scope in scopes:
            name = proposed[scope] if rivals[proposed[scope]] == 1 else scope[-1]
            name_of[scope] = (*name_of[parent], name)
    return name_of


@dataclasses.dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a program as a tree, and the layer of each op."""

    # [L] paths such as ``"encoder/layer_1"``; ``NO_LAYER`` for ops without one. A layer stands before those
    # inside it; beside that, in the order of their first ops.
    names: tuple[str, ...]
    parent: np.ndarray  # [L] int32, the layer that each is inside of; ``ROOT`` of those that are in none
    # [N] int32. An op of a layer that has others inside it may be in none of these.
    layer_of_op: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    @functools.cached_property
    def children(self) -> list[list[int]]:
        """[L + 1] direct children of each layer; the last entry, at ``ROOT``, has the outermost layers."""
        children: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for layer, parent in enumerate(self.parent.tolist()):
            children[parent].append(layer)
        return children

    def is_inside(self, layer: int) -> np.ndarray:
        """[L] bool: the layer and all layers inside."""
        around = f"{self.names[layer]}/"
        return np.array([f"{name}/".startswith(around) for name in self.names])

    def sums(self, per_op: np.ndarray) -> np.ndarray:
        """[L, ...] sums of ``per_op`` [N, ...] over each layer and all layers inside."""
        total = np.zeros((len(self), *per_op.shape[1:]), per_op.dtype)
        np.add.at(total, self.layer_of_op, per_op)
        for layer in range(len(self) - 1, -1, -1):
            if self.parent[layer] != ROOT:
                total[self.parent[layer]] += total[layer]
        return total


def layers_of_parts(problem: Problem) -> Layers:
    """The layers of a program in parts, with all copies of an op in one layer."""
    numbered = zip(problem.op_names, problem.part_of_op().tolist(), strict=True)
    names = tuple(name if part < 0 else f"{name.partition('/')[2]}__{part}" for name, part in numbered)
    return layers_of(dataclasses.replace(problem, op_names=names))


def layers_of(problem: Problem) -> Layers:
    """Finds the layers of a program: name scopes as deep as variables tell layers apart.

    A scope is a layer, unless variables are read in scopes inside it: then these and their siblings are the layers, and
    it is around them. In a program that reads no variables every scope is one. Gradients are in the layer of what they
    are the gradient of; variables in the layer that reads them, with what else takes them and has no layer. What is
    named after an optimizer, a scope that writes variables of another layer, and what has no scope at all is in the
    layer of all that it reads, or else of all that it feeds; where these disagree, in one of the optimizer's own name,
    or in ``NO_LAYER``.

    A graph with names that have no scopes has one layer, ``NO_LAYER``.
    """
    names = problem.op_names
    if problem.splitting is not None:  # trips of a loop that is written out have the scopes of its body
        names = tuple(_TRIP.sub("", name) for name in names)
    scopes = scopes_of(names, problem.op_types)
    edges = problem.op_graph
    takers: list[list[int]] = [[] for _ in problem.op_names]
    for producer, consumer in zip(edges.producer.tolist(), edges.consumer.tolist(), strict=True):
        takers[producer].append(consumer)
    readers = {op: takers[op] for op, kind in enumerate(problem.op_types) if kind in VARIABLES}
    users: dict[int, list[int]] = {}  # of a variable or its value, past the ops named after the variable
    for variable in readers:
        pending, reached = [variable], set[int]()
        while pending:
            for op in takers[pending.pop()]:
                if problem.op_names[op].startswith(f"{problem.op_names[variable]}/"):
                    pending.append(op)
                else:
                    reached.add(op)
        users[variable] = sorted(reached)
    home_of_variable, named_by = variable_scopes(users, scopes, problem.op_names)
    scopes = [home_of_variable.get(op, scope) for op, scope in enumerate(scopes)]
    homes = set(filter(None, home_of_variable.values()))
    around = below(homes or scopes)
    # The outermost scope that no other layer is inside of.
    layer_of_op = [
        scope[: next((d for d in range(1, len(scope) + 1) if scope[:d] not in around), len(scope))]
        for scope in scopes
    ]
    # Layers that write variables of others that are neither in them nor around them.
    updating = set[Scope]()
    for variable, ops in readers.items():
        home = layer_of_op[variable]
        for layer in {layer_of_op[op] for op in ops if problem.op_types[op].startswith(_UPDATES)}:
            depth = min(len(home), len(layer))
            if home and layer and home[:depth] != layer[:depth]:
                updating.add(layer)
    named_layer: list[Scope] = [() if layer in updating else layer for layer in layer_of_op]
    for variable, ops in readers.items():  # they share a device with it
        for op in ops:
            named_layer[op] = named_layer[op] or named_layer[variable]
    inferred = layer_of_neighbours(named_layer, edges.producer, edges.consumer)
    final = [neighbour or layer for neighbour, layer in zip(inferred, layer_of_op, strict=True)]
    return _as_tree(final, named_by)


def _as_tree(layer_of_op: Sequence[Scope], named_by: Mapping[Scope, Scope]) -> Layers:
    used = dict.fromkeys(layer_of_op)
    called = layer_names({*used, *below(used)} - {()}, named_by)
    path_of_op = [called[scope] for scope in layer_of_op]
    inside: defaultdict[Scope, dict[Scope, None]] = defaultdict(dict)
    for name in dict.fromkeys(path_of_op):
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
        tuple(names), np.array(parent, np.int32), np.array([position[name] for name in path_of_op], np.int32)
    )


def layer_of_unit(problem: Problem, layers: Layers) -> np.ndarray:
    """[U] int32: the layer that most of a unit's ops are of; of equals, the one that stands first.

    Ops that must share a device may be of several layers. They go where this one goes. Costs have no say, so that a
    plan means the same whatever its ops cost.
    """
    votes = np.ones(problem.num_ops, np.int64), (problem.unit_of_op, layers.layer_of_op)
    table = scipy.sparse.csr_array(votes, (problem.num_units, len(layers)))  # sums equal places
    return np.ravel(table.argmax(axis=1)).astype(np.int32)


def with_units_whole(problem: Problem, layers: Layers) -> Layers:
    """The layers with every op in the one that its unit goes with, which may leave some without ops."""
    return dataclasses.replace(layers, layer_of_op=layer_of_unit(problem, layers)[problem.unit_of_op])


def layer_lines(
    problem: Problem, layers: Layers, device_of_unit: np.ndarray
) -> tuple[dict[str, str], dict[str, str]]:
    """The fewest lines, layer -> device, that state a placement [U]; a layer without a line is where its parent is.

    With them op -> device, one op of each unit that is not where its layer is.
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
    differs = device_of_unit[units] != device_of_layer[home[units]]
    ops = np.sort(first_op[differs]).tolist()
    return lines, {problem.op_names[op]: names[device_of_unit[problem.unit_of_op[op]]] for op in ops}


def device_of_lines(
    problem: Problem, layers: Layers, lines: Mapping[str, str], source: str, ignore_unknown: bool = False
) -> np.ndarray:
    """[U] int32: device of each unit by lines layer -> device of a plan, ``NO_LINE`` for units without a line."""
    column = {device.name: d for d, device in enumerate(problem.cluster.devices)}
    position = {name: layer for layer, name in enumerate(layers.names)}
    planned: dict[int, int] = {}
    for name, device in lines.items():
        if name in position and device not in column:
            raise InputError(
                f"{source}: layer {name!r} is on {device!r}, which cluster {problem.cluster.name!r} lacks; it has "
                f"{', '.join(column)}"
            )
        if name in position:
            planned[position[name]] = column[device]
        elif not ignore_unknown:
            raise InputError(
                f"{source} has a line of layer {name!r}, which is not there; {nearest(name, layers.names)}"
            )
    device_of_layer = np.full(len(layers), NO_LINE, np.int32)
    for layer, around in enumerate(layers.parent.tolist()):
        inherited = NO_LINE if around == ROOT else int(device_of_layer[around])
        device_of_layer[layer] = planned.get(layer, inherited)
    return device_of_layer[layer_of_unit(problem, layers)]


@dataclasses.dataclass(frozen=True, eq=False)
class LayerRow:
    """A layer with everything inside, or the layers that there is no room for."""

    name: str  # its path, or how many layers these are
    depth: int  # how many layers are around it
    num_ops: int  # of it
    # [D] int64, time of its ops on each device that they are on; ops that cost nothing take none
    compute_ns: np.ndarray
    ops_on: np.ndarray  # [D] int64, how many ops are on each device
    resident_bytes: int  # what stays in memory for it: variables
    output_bytes: int  # what its ops give in a step, whether or not it is all there at once

    @property
    def compute_s(self) -> float:
        """Seconds of all of its ops, one after the other."""
        return float(self.compute_ns.sum() / 1e9)

    def on(self, names: Sequence[str]) -> str:
        """Device of the layer by name [D], or several with their shares of the time; of ops where nothing costs."""
        part = self.compute_ns if self.compute_ns.any() else self.ops_on
        share = part / max(int(part.sum()), 1)
        used = sorted(np.flatnonzero(self.ops_on).tolist(), key=lambda d: -share[d])
        seen = [d for d in used if share[d] >= _SEEN]
        free = [f"{self.ops_on[d]} ops on {names[d]}" for d in used if share[d] < _SEEN]
        if len(seen) == 1:
            return ", ".join([names[seen[0]], *free])
        return ", ".join([*(f"{names[d]} {percentage(float(share[d]))}" for d in seen), *free])


def layer_rows(
    problem: Problem, layers: Layers, device_of_unit: np.ndarray, most: int = MOST_ROWS
) -> list[LayerRow]:
    """Rows in the order of the tree: the layer that takes longest is opened first, while there is room.

    Ops count with the layer that their unit goes with. Of the layers inside one that do not all find room among
    ``most`` rows, those that take least are one row.
    """
    device = device_of_unit[problem.unit_of_op]
    ops = np.arange(problem.num_ops)
    on = np.zeros((problem.num_ops, problem.num_devices), np.int64)
    on[ops, device] = 1
    # A unit's variables are at its first op.
    resident = np.zeros(problem.num_ops, np.int64)
    units, first_op = np.unique(problem.unit_of_op, return_index=True)
    resident[first_op] = problem.resident_bytes[units]
    output = np.zeros(problem.num_ops, np.int64)
    np.add.at(output, problem.tensor_producer, problem.tensor_bytes)
    layers = with_units_whole(problem, layers)
    # [L, ...] each layer with all inside it.
    time, count = layers.sums(on * problem.compute_ns), layers.sums(on)
    held, output_bytes = layers.sums(resident), layers.sums(output)

    def row(name: str, depth: int, members: list[int]) -> LayerRow:
        return LayerRow(
            name=name,
            depth=depth,
            num_ops=int(count[members].sum()),
            compute_ns=time[members].sum(axis=0),
            ops_on=count[members].sum(axis=0),
            resident_bytes=int(held[members].sum()),
            output_bytes=int(output_bytes[members].sum()),
        )

    shown = _with_room(layers, time.sum(axis=1), count.sum(axis=1), most)
    rows: list[LayerRow] = []

    def add(around: int, depth: int) -> None:
        children = [child for child in layers.children[around] if count[child].any()]
        visible = [child for child in children if child in shown]
        for child in visible:
            rows.append(row(layers.names[child], depth, [child]))
            add(child, depth + 1)
        rest = [child for child in children if child not in shown]
        if rest and (visible or around == ROOT):
            rows.append(row(f"({len(rest)} more)", depth, rest))

    add(ROOT, 0)
    return rows


def _with_room(layers: Layers, time_ns: np.ndarray, count: np.ndarray, most: int) -> set[int]:
    """Layers with a row of their own, such that rows and remainders number at most ``most``."""
    shown: set[int] = set()
    room = most
    closed = [(0, ROOT)]
    while closed and room > 0:
        _, layer = heapq.heappop(closed)
        children = [child for child in layers.children[layer] if count[child]]
        children.sort(key=lambda child: (-time_ns[child], child))
        if len(children) > room:
            children = children[: room - 1]
            room = 0
        else:
            room -= len(children)
        shown.update(children)
        for child in children:
            heapq.heappush(closed, (-int(time_ns[child]), child))
    return shown
