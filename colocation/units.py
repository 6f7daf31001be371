"""Colocation units: the sets of ops that share a device, and the rules that form more than TensorFlow does.

Source of the soft rules: Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning", ICML 2017,
section 3.3 "Co-locating operations". Each heuristic is a function (GraphIndex, Units) -> merges for ``form_units``;
those with settings are made by a function. None may split what TensorFlow ties, all may tie what TensorFlow could
split.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import scipy.sparse.csgraph
import tensorflow as tf
from scipy.cluster.hierarchy import DisjointSet

from colocation.constraints import RULES, Merge, class_lists
from colocation.op_facts import GraphIndex, index_graph, values

_POOL_OF_GRADIENT = values("pool")
_V1_GRADIENT = re.compile(r"(?:^|/)gradients(?:_\d+)?/(?P<forward>.+?)_grad(?:/|$)")
_TAPE_GRADIENT = re.compile(r"(?:^|/)gradient_tape(?:_\d+)?/(?P<path>.+)$")
_UNIQUE_SUFFIX = re.compile(r"_\d+$")
_NUMBERED = re.compile(r"^(?P<base>.*?)(?:_(?P<number>\d+))?$", re.DOTALL)
_GRADIENT = re.compile(r"(?:^|/)(?:gradients|gradient_tape)(?:_\d+)?/")


@dataclasses.dataclass(frozen=True)
class Units:
    """A partition of the N ops of a graph into U units."""

    unit_of_op: np.ndarray  # [N] int32; units are numbered by their smallest op id
    # the N - U merges that made the units, in the order of the rules. A merge of two ops that were together
    # already is left out, so these are the edges of a forest.
    merges: tuple[Merge, ...]

    @property
    def num_units(self) -> int:
        return int(self.unit_of_op.max(initial=-1)) + 1

    def members(self, unit: int) -> np.ndarray:
        """Returns the unit's op ids, ascending."""
        return np.flatnonzero(self.unit_of_op == unit)

    def why(self, op_a: int, op_b: int) -> tuple[Merge, ...]:
        """Explains why two ops share a unit; ValueError if they do not.

        Returns the chain of merges that leads from ``op_a`` to ``op_b``; each shares an op with the next.
        """
        if self.unit_of_op[op_a] != self.unit_of_op[op_b]:
            raise ValueError(f"ops {op_a} and {op_b} are in different units; nothing ties them")
        merge_of = {frozenset((merge.op_a, merge.op_b)): merge for merge in self.merges}
        ends = np.array([(merge.op_a, merge.op_b) for merge in self.merges], np.int64).reshape(-1, 2)
        num_ops = len(self.unit_of_op)
        forest = scipy.sparse.csr_array((np.ones(len(ends)), ends.T), (num_ops, num_ops))
        _, next_op = scipy.sparse.csgraph.breadth_first_order(forest, op_b, directed=False)  # toward op_b
        chain = []
        while op_a != op_b:
            chain.append(merge_of[frozenset((op_a, int(next_op[op_a])))])
            op_a = int(next_op[op_a])
        return tuple(chain)


Heuristic = Callable[[GraphIndex, Units], Iterable[Merge]]


def form_units(graph: tf.compat.v1.GraphDef | GraphIndex, heuristics: Sequence[Heuristic] = ()) -> Units:
    """Units demanded by TensorFlow's hard rules, then by heuristics, each of which sees the units formed before.

    Linear in ops and edges (times the inverse Ackermann function of union-find).

    Raises:
      ValueError: the GraphDef is damaged; the message names the node.
    """
    index = graph if isinstance(graph, GraphIndex) else index_graph(graph)
    return _formed(index, (merge for rule in RULES for merge in rule(index)), heuristics)


def extend_units(index: GraphIndex, unit_of_op: np.ndarray, heuristics: Sequence[Heuristic]) -> Units:
    """Merges units that are there already, as heuristics suggest; no hard rule is asked, nothing is split.

    Of the index's GraphDef only what the heuristics read has to be there. ``unit_of_op`` [N] has any numbers.
    """
    if len(unit_of_op) != index.num_ops:
        raise ValueError(
            f"unit_of_op has {len(unit_of_op)} entries, but the graph has {index.num_ops} ops; give one for each"
        )
    first_of_unit: dict[int, int] = {}
    leaders = (first_of_unit.setdefault(unit, op) for op, unit in enumerate(unit_of_op.tolist()))
    ties = (Merge(a, op, "given", "they are given as one unit") for op, a in enumerate(leaders) if a != op)
    return _formed(index, ties, heuristics)


def class_groups(index: GraphIndex) -> dict[int, int]:
    """Op -> an op of its group, of the ops that share a device by ``_class``."""
    sets = DisjointSet(range(index.num_ops))
    ties = [(merge.op_a, merge.op_b) for merge in class_lists(index)]
    for tie in ties:
        sets.merge(*tie)
    return {op: sets[op] for tie in ties for op in tie}


def _formed(index: GraphIndex, ties: Iterable[Merge], heuristics: Sequence[Heuristic]) -> Units:
    """Units by ties, then by each heuristic in turn."""
    sets = DisjointSet(range(index.num_ops))
    units = _joined(sets, (), ties)
    for heuristic in heuristics:
        units = _joined(sets, units.merges, heuristic(index, units))
    return units


def _joined(sets: DisjointSet, before: tuple[Merge, ...], merges: Iterable[Merge]) -> Units:
    merged = tuple(merge for merge in merges if sets.merge(merge.op_a, merge.op_b))
    unit_of_root: dict[int, int] = {}
    units = [unit_of_root.setdefault(sets[op], len(unit_of_root)) for op in sets]
    return Units(np.array(units, np.int32), before + merged)


def default_groups(index: GraphIndex, units: Units) -> Iterator[Merge]:
    """Ties each gradient op to its forward op (ColocRL rule 1).

    The other half of the rule, variables with their updates, is hard already (resource
    and ref edges). A GraphDef names the forward op only in the gradient op's name, so the name is
    what is read: ``gradients/X_grad/...`` of ``tf.gradients``, ``gradient_tape/SCOPE/...`` of
    ``tf.GradientTape``; of the latter the longest prefix that names a forward op or, failing that,
    a scope (then its first op stands for it). Names that tell nothing are left alone.
    """
    del units  # the rule is about ops
    first_of_scope: dict[str, int] = {}
    for op, name in enumerate(index.names):
        first_of_scope.setdefault(name.rpartition("/")[0], op)
    for op, name in enumerate(index.names):
        forward = _forward_op(name, index, first_of_scope)
        if forward not in (None, op):
            reason = f"{name} is part of the gradient of {index.names[forward]}"
            yield Merge(forward, op, "default_groups", reason)


def single_consumer(*, weight_of_op: np.ndarray | None = None, most: float = math.inf) -> Heuristic:
    """Makes the rule "if Y alone consumes the output of X, X and Y share a device" (ColocRL rule 2).

    Groups are treated as ops until nothing merges, as the paper says. **A graph with one sink then becomes one unit**
    (the last op before the sink has no other consumer, and so on backwards); a training step does not, its variable
    updates are sinks. Waiting for X is not consuming it.

    Args:
      weight_of_op: [N] what ``most`` is about, such as each op's time; without, how many ops.
      most: two groups whose weights add up to more stay apart, for graphs with one sink.
    """

    def merge_single_consumers(index: GraphIndex, units: Units) -> Iterator[Merge]:
        successors: list[set[int]] = [set() for _ in range(units.num_units)]
        predecessors: list[set[int]] = [set() for _ in range(units.num_units)]
        for producer, consumer in units.unit_of_op[index.data_edges[:, [0, 2]]].tolist():
            if producer != consumer:
                successors[producer].add(consumer)
                predecessors[consumer].add(producer)
        weight = np.bincount(units.unit_of_op, weight_of_op, minlength=units.num_units).tolist()
        first_op = np.unique(units.unit_of_op, return_index=True)[1].tolist()
        for unit, consumer in _contract(successors, predecessors, weight, most):
            op_a, op_b = first_op[unit], first_op[consumer]
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
    compiled = _compiled("name-scope", pattern)

    def merge_scopes(index: GraphIndex, units: Units) -> Iterator[Merge]:
        del units  # the rule is about ops
        first_of_key: dict[tuple[str | None, ...], int] = {}
        for op, name in enumerate(index.names):
            match = compiled.search(name)
            if match is None:
                continue
            key = match.groups() or (match.group(),)
            leader = first_of_key.setdefault(key, op)
            if leader != op:
                yield Merge(leader, op, "name_scope", f"{name} and {index.names[leader]} match {pattern!r}")

    return merge_scopes


def _compiled(what: str, pattern: str) -> re.Pattern[str]:
    """Compiles the pattern of a rule; ``what`` names the rule in the error."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{what} pattern {pattern!r} is not a regular expression: {error}") from error


def attach_constants(index: GraphIndex, units: Units) -> Iterator[Merge]:
    """Ties a ``Const`` to its consumers when all are in one unit.

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
    """Gradient op -> pool op, for pools in channels-first layout.

    oneDNN has a CPU kernel of such a gradient only next to its pool, which leaves a note of where each maximum was.
    """
    pool_of_gradient = {}
    for producer, _, consumer, position in index.data_edges.tolist():
        pool = _POOL_OF_GRADIENT.get(index.op_types[consumer])
        if position == 1 and pool is not None and index.op_types[producer] == pool:
            attributes = index.graph_def.node[consumer].attr
            if "data_format" in attributes and attributes["data_format"].s in (b"NCDHW", b"NCHW"):
                pool_of_gradient[consumer] = producer
    return pool_of_gradient


def attach_pools(index: GraphIndex, units: Units) -> Iterator[Merge]:
    """Ties the gradient of a channels-first pool to the pool (``paired_pools``)."""
    del units
    for gradient, pool in paired_pools(index).items():
        reason = f"{index.names[gradient]} has a CPU kernel for its layout only next to {index.names[pool]}"
        yield Merge(pool, gradient, "attach_pools", reason)


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
            for neighbour in neighbours[small]:
                back[neighbour].discard(small)
                back[neighbour].add(large)
                neighbours[large].add(neighbour)
                waiting.append(neighbour)
            neighbours[small].clear()
        waiting.append(large)


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
    compiled = _compiled("step", pattern)

    def merge_steps(index: GraphIndex, units: Units) -> Iterator[Merge]:
        del units  # the rule is about ops
        # Scope -> name without its number -> number -> ops with this name or below.
        scopes: dict[str, dict[str, dict[int, list[int]]]] = collections.defaultdict(
            lambda: collections.defaultdict(lambda: collections.defaultdict(list))
        )
        for op, name in enumerate(index.names):
            match = None if _GRADIENT.search(name) else compiled.search(name)
            if match is not None:
                numbered = _NUMBERED.match(name[match.end() :].partition("/")[0])
                assert numbered is not None  # the expression takes any text of one line
                scopes[name[: match.end()]][numbered["base"]][int(numbered["number"] or 0)].append(op)
        for scope, names in scopes.items():
            calls = math.gcd(*(len(numbers) for numbers in names.values()))
            leader_of_call: dict[int, int] = {}
            for numbers in names.values():
                for position, number in enumerate(sorted(numbers)):
                    call = position * calls // len(numbers)
                    for op in numbers[number]:
                        leader = leader_of_call.setdefault(call, op)
                        if leader != op:
                            reason = (
                                f"{index.names[op]} is of the same step of {scope} as {index.names[leader]}"
                            )
                            yield Merge(leader, op, "unrolled_calls", reason)

    return merge_steps
