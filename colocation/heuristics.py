"""Soft colocation rules: ColocRL's three, and those that keep free ops and pools with what they serve.

Source: Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning",
ICML 2017, section 3.3 "Co-locating operations". Each heuristic is a function
(GraphIndex, Units) -> merges for ``form_units``; those with settings are made by a function.
None may split what TensorFlow ties, all may tie what TensorFlow could split.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterator

import numpy as np

from colocation.constraints import Merge
from colocation.op_facts import GraphIndex, having, values
from colocation.units import Heuristic, Units

_METADATA_TYPES, _POOL_OF_GRADIENT = having("metadata"), values("pool")
_V1_GRADIENT = re.compile(r"(?:^|/)gradients(?:_\d+)?/(?P<forward>.+?)_grad(?:/|$)")
_TAPE_GRADIENT = re.compile(r"(?:^|/)gradient_tape(?:_\d+)?/(?P<path>.+)$")
_UNIQUE_SUFFIX = re.compile(r"_\d+$")


def default_groups(index: GraphIndex, units: Units) -> Iterator[Merge]:
    """Ties each gradient op to the forward op it differentiates (ColocRL rule 1).

    The other half of the rule, variables with their updates, is hard already (resource
    and ref edges). A GraphDef names the forward op only in the gradient op's name, so the name is
    what is read: ``gradients/X_grad/...`` of ``tf.gradients``, ``gradient_tape/SCOPE/...`` of
    ``tf.GradientTape``; of the latter the longest prefix that names a forward op or, failing that,
    a scope (then its first op stands for it). Names that tell nothing are left alone.
    """
    del units  # the rule is about ops
    first_of_scope = _first_op_of_scopes(index)
    for op, name in enumerate(index.names):
        forward = _forward_op(name, index, first_of_scope)
        if forward is not None and forward != op:
            reason = f"{name} is part of the gradient of {index.names[forward]}"
            yield Merge(forward, op, "default_groups", reason)


def single_consumer(
    *,
    follow_control_edges: bool = False,
    recursive: bool = True,
    weight_of_op: np.ndarray | None = None,
    most: float = math.inf,
) -> Heuristic:
    """Makes the rule "if Y alone consumes the output of X, X and Y share a device" (ColocRL rule 2).

    Args:
      follow_control_edges: whether waiting for X counts as consuming it.
      recursive: treat groups as ops until nothing merges, as the paper says. **A graph with one
        sink then becomes one unit** (the last op before the sink has no other consumer, and
        so on backwards); a training step does not, its variable updates are sinks. False
        asks only once, about the units as they were given.
      weight_of_op: [N] what ``most`` is about, such as each op's time; without, how many ops.
      most: two groups whose weights add up to more stay apart, for graphs with one sink. Recursive only.
    """

    def merge_single_consumers(index: GraphIndex, units: Units) -> Iterator[Merge]:
        successors, predecessors = _unit_graph(index, units, follow_control_edges)
        weight = np.bincount(units.unit_of_op, weight_of_op, minlength=units.num_units).tolist()
        pairs = (
            _contract(successors, predecessors, weight, most)
            if recursive
            else _merge_once(successors, predecessors)
        )
        for unit, consumer in pairs:
            op_a, op_b = int(units.members(unit)[0]), int(units.members(consumer)[0])
            reason = f"the group of {index.names[op_b]} alone consumes that of {index.names[op_a]}"
            yield Merge(op_a, op_b, "single_consumer", reason)

    return merge_single_consumers


def name_scope(pattern: str) -> Heuristic:
    """Makes the rule that ops of one layer or cell share a device (ColocRL rule 3).

    Args:
      pattern: regular expression searched in each op name; ops whose matches capture the same
        groups (the whole match, if there are no groups) are one unit. For example
        ``r"lstm_(\\d+)/step_(\\d+)/"`` is a unit per LSTM cell.

    Raises:
      ValueError: the pattern is not a regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"name-scope pattern {pattern!r} is not a regular expression: {error}") from error

    def merge_scopes(index: GraphIndex, units: Units) -> Iterator[Merge]:
        del units  # the rule is about ops
        first_of_key: dict[tuple[str | None, ...], int] = {}
        for op, name in enumerate(index.names):
            match = compiled.search(name)
            if match is None:
                continue
            key = match.groups() or (match.group(),)
            first = first_of_key.setdefault(key, op)
            if first != op:
                yield Merge(first, op, "name_scope", f"{name} and {index.names[first]} match {pattern!r}")

    return merge_scopes


def attach_constants(index: GraphIndex, units: Units) -> Iterator[Merge]:
    """Ties a ``Const`` to its consumer when one unit alone reads it.

    A constant costs nothing and is copied in when the step is built, so to place it apart only
    adds a message; a search should not spend moves on it. A constant that a hard rule ties to other ops stays
    with those.
    """
    unit_size = np.bincount(units.unit_of_op, minlength=units.num_units)
    consumers: dict[int, set[int]] = collections.defaultdict(set)
    reader: dict[int, int] = {}
    for producer, _, consumer, _ in index.data_edges.tolist():
        if index.op_types[producer] == "Const":
            consumers[producer].add(int(units.unit_of_op[consumer]))
            reader.setdefault(producer, consumer)
    for constant, consuming_units in consumers.items():
        if len(consuming_units) == 1 and unit_size[units.unit_of_op[constant]] == 1:
            reason = f"{index.names[constant]} is read by the unit of {index.names[reader[constant]]} alone"
            yield Merge(constant, reader[constant], "attach_constants", reason)


def paired_pools(index: GraphIndex) -> dict[int, int]:
    """The gradients of pools of channels-first layout, each with the pool that it is the gradient of.

    oneDNN has a CPU kernel of such a gradient only next to its pool, which leaves a note of where each maximum was.
    """
    found = {}
    for producer, _, consumer, position in index.data_edges.tolist():
        pool = _POOL_OF_GRADIENT.get(index.op_types[consumer])
        if position == 1 and pool is not None and index.op_types[producer] == pool:
            attributes = index.graph_def.node[consumer].attr
            if "data_format" in attributes and attributes["data_format"].s in (b"NCDHW", b"NCHW"):
                found[consumer] = producer
    return found


def attach_pools(index: GraphIndex, units: Units) -> Iterator[Merge]:
    """Ties the gradient of a channels-first pool to the pool (``paired_pools``)."""
    del units
    for gradient, pool in paired_pools(index).items():
        reason = f"{index.names[gradient]} has a CPU kernel for its layout only next to {index.names[pool]}"
        yield Merge(pool, gradient, "attach_pools", reason)


def attach_metadata(index: GraphIndex, units: Units) -> Iterator[Merge]:
    """Ties ``Shape``, ``ShapeN``, ``Size`` and ``Rank`` to their (first) producer.

    They read a shape and not the data; elsewhere the whole tensor would travel for it. The Placer
    does the same for such an op without a device.
    """
    del units  # the rule is about ops
    for producer, _, consumer, position in index.data_edges.tolist():
        if position == 0 and index.op_types[consumer] in _METADATA_TYPES:
            reason = f"{index.names[consumer]} only asks for the shape of {index.names[producer]}"
            yield Merge(producer, consumer, "attach_metadata", reason)


def _first_op_of_scopes(index: GraphIndex) -> dict[str, int]:
    """Maps each name scope to the first op directly in it."""
    first: dict[str, int] = {}
    for op, name in enumerate(index.names):
        first.setdefault(name.rpartition("/")[0], op)
    return first


def _forward_op(name: str, index: GraphIndex, first_of_scope: dict[str, int]) -> int | None:
    match = _V1_GRADIENT.search(name)
    if match:
        prefix = name[: match.start()] + "/" if match.start() else ""
        return index.id_of_name.get(prefix + match["forward"], index.id_of_name.get(match["forward"]))
    match = _TAPE_GRADIENT.search(name)
    if not match:
        return None
    path = match["path"]
    while path:
        for candidate in (path, _UNIQUE_SUFFIX.sub("", path)):
            if candidate in index.id_of_name:
                return index.id_of_name[candidate]
        if path in first_of_scope:
            return first_of_scope[path]
        path = path.rpartition("/")[0]
    return None


def _unit_graph(
    index: GraphIndex, units: Units, follow_control_edges: bool
) -> tuple[list[set[int]], list[set[int]]]:
    """Returns the distinct successors and predecessors of each unit, itself left out."""
    edges = index.edges if follow_control_edges else index.data_edges[:, [0, 2]]
    successors: list[set[int]] = [set() for _ in range(units.num_units)]
    predecessors: list[set[int]] = [set() for _ in range(units.num_units)]
    for producer, consumer in units.unit_of_op[edges].tolist():
        if producer != consumer:
            successors[producer].add(consumer)
            predecessors[consumer].add(producer)
    return successors, predecessors


def _merge_once(successors: list[set[int]], predecessors: list[set[int]]) -> Iterator[tuple[int, int]]:
    del predecessors
    for unit, consumers in enumerate(successors):
        if len(consumers) == 1:
            yield unit, next(iter(consumers))


def _contract(
    successors: list[set[int]], predecessors: list[set[int]], weight: list[float], most: float
) -> Iterator[tuple[int, int]]:
    """Contracts edges to an only successor until there is none; yields (unit, its only consumer).

    The one of the two with fewer neighbours takes the other's name, so an edge is rewritten
    O(log E) times. The result does not depend on the order, but where ``most`` keeps two apart; and contracting an
    only out-edge closes no cycle.
    """
    waiting = collections.deque(range(len(successors)))
    while waiting:
        unit = waiting.popleft()
        if len(successors[unit]) != 1:
            continue
        (consumer,) = successors[unit]
        if weight[unit] + weight[consumer] > most:
            continue
        yield unit, consumer
        successors[unit].clear()
        predecessors[consumer].discard(unit)
        # The consumer may also feed the unit (hard units can form cycles).
        successors[consumer].discard(unit)
        predecessors[unit].discard(consumer)
        degree = [len(successors[u]) + len(predecessors[u]) for u in (unit, consumer)]
        small, large = (unit, consumer) if degree[0] <= degree[1] else (consumer, unit)
        weight[large] += weight[small]
        for neighbours, back in ((successors, predecessors), (predecessors, successors)):
            for other in neighbours[small]:
                back[other].discard(small)
                back[other].add(large)
                neighbours[large].add(other)
                waiting.append(other)
            neighbours[small].clear()
        waiting.append(large)


# Steps of a layer that was unrolled over time: one unit each.

_NUMBERED = re.compile(r"^(?P<base>.*?)(?:_(?P<number>\d+))?$", re.DOTALL)
_GRADIENT = re.compile(r"(?:^|/)(?:gradients|gradient_tape)(?:_\d+)?/")


def unrolled_calls(pattern: str) -> Heuristic:
    """Makes the rule that each step of an LSTM is one group (ColocRL rule 3) where all steps have one name scope.

    TensorFlow numbers what is called again: of 560 ops ``layer_0/step/matmul_K`` in 70 steps, each step has 8. So
    a scope was called T times, where T divides how often each of its names is there, and the k-th of n ops of a name
    belongs to call floor(k T / n). T is the greatest common divisor. Gradients are left alone: ``default_groups``
    ties them to what they differentiate.

    Args:
      pattern: regular expression; a scope is what of an op's name ends where it is found. For example
        ``r"(?:^|/)step/"``.

    Raises:
      ValueError: the pattern is not a regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"step pattern {pattern!r} is not a regular expression: {error}") from error

    def merge_steps(index: GraphIndex, units: Units) -> Iterator[Merge]:
        del units  # the rule is about ops
        for scope, names in _numbered_ops(index, compiled).items():
            calls = math.gcd(*(len(numbers) for numbers in names.values()))
            first: dict[int, int] = {}
            for numbers in names.values():
                for position, number in enumerate(sorted(numbers)):
                    call = position * calls // len(numbers)
                    for op in numbers[number]:
                        leader = first.setdefault(call, op)
                        if leader != op:
                            reason = (
                                f"{index.names[op]} is of the same step of {scope} as {index.names[leader]}"
                            )
                            yield Merge(leader, op, "unrolled_calls", reason)

    return merge_steps


def _numbered_ops(index: GraphIndex, pattern: re.Pattern[str]) -> dict[str, dict[str, dict[int, list[int]]]]:
    """Scope -> name without its number -> number -> the ops of that name, or below it."""
    scopes: dict[str, dict[str, dict[int, list[int]]]] = collections.defaultdict(
        lambda: collections.defaultdict(lambda: collections.defaultdict(list))
    )
    for op, name in enumerate(index.names):
        match = None if _GRADIENT.search(name) else pattern.search(name)
        if match is None:
            continue
        numbered = _NUMBERED.match(name[match.end() :].partition("/")[0])
        assert numbered is not None  # the expression takes any text of one line
        scopes[name[: match.end()]][numbered["base"]][int(numbered["number"] or 0)].append(op)
    return scopes
