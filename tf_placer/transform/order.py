"""Control edges for an order of execution: as few as keep the simulated step of a plan's priorities."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.sparse

from colocation.constraints import outermost_loops
from colocation.op_facts import (
    BRANCHES,
    CALLS,
    LOOPS,
    MERGES,
    GraphIndex,
    having,
    op_definition,
    reached,
    topological_order,
)
from tf_placer.base.eager import eagerly
from tf_placer.graph.item import Item
from tf_placer.graph.program import SHARED
from tf_placer.ops.simulator import SimulatorInputs, simulate
from tf_placer.problem.op_graph import tensor_of_edge, tensor_table
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem, simulator_inputs
from tf_placer.transform.fusion import contracted, fused_plan

WITHIN = 0.01  # share by which step and peaks with the edges may exceed those with the priorities

_NONE = np.zeros((0, 2), np.int32)
_CRITICAL = 0.05  # share of the step that a critical send can wait at most
_CROSSES, _IS_RECEIVED = 1, 2  # legs of a transfer (``Simulation``)
_REMOVALS = 64  # simulations after the search for the shortest prefix
_CHUNKS = 8  # stretches of the step that are tried first, half as long after each round
_SHARES = 4  # of the pairs that are tried where all of them do not keep the step
_REMEMBERED = 64  # plans whose edges are kept

_SWITCHES = having("switch")
# Ops with a formula of their work only compute; others that keep state may wait for another op.
_COMPUTES = having("work")
_LOWERED = LOOPS | BRANCHES | CALLS  # run as simpler ops, which begin before the whole does
_REPLACED = having("held_elsewhere") | having("variable") | having("iterator_read")  # in a runnable program
_edges_of_plan: dict[tuple[object, ...], np.ndarray] = {}


@eagerly()
def order_edges(placement: Placement, item: Item | None = None) -> np.ndarray:
    """Control edges by which a runtime without priorities executes a plan in their order.

    Of all ``ordered_pairs``, those come first that make a send earlier for which the step waits, then borders of parts
    of the batch, then the others by how much longer the later op could wait. The shortest prefix is taken whose step
    and peaks of memory, simulated without priorities, are within ``WITHIN`` of those with them. Then edges of stretches
    of the step that do not need them are removed. The edges of a plan are found once in a process.

    Args:
      placement: a plan; one without priorities has no edges.
      item: its program, whose loops and moved ops take no edges; None where the problem is of no TensorFlow graph.

    Returns:
      [K, 2] int32: op, and the op on its device that is to run after it. With the graph they have no cycle. The first
      op of a cluster stands for the cluster.
    """
    if placement.priority_of_op is None:
        return _NONE
    plan, op_of_node = fused_plan(placement)
    # Writing, measuring, auditing and tracing ask for the same edges: all that they follow from is the key.
    problem = placement.problem
    program = item and (item.fingerprint, *sorted(item.host_ops)), problem.splitting
    key = program, problem.digest(), plan.problem.digest(), placement.decisions.digest(0, problem)
    if key in _edges_of_plan:
        return _edges_of_plan[key]
    inputs = simulator_inputs(plan.problem)
    step = _Step.of(plan, inputs)
    most_ns, most_bytes = step.runtime_ns * (1 + WITHIN), step.peak_bytes * (1 + WITHIN)

    def excess(edges: np.ndarray) -> float:
        """Share by which step or peaks exceed what they may, 0 for none."""
        simulation = simulate(with_edges(inputs, edges), plan.device_of_unit[np.newaxis])
        runtime_ns, peak_bytes = simulation.runtime_ns.numpy()[0], simulation.peak_bytes.numpy()[0]
        over = (peak_bytes - most_bytes) / np.maximum(most_bytes, 1)
        return max(float(over.max()), float((runtime_ns - most_ns) / max(most_ns, 1)), 0.0)

    # The most important first: for critical sends, at borders of parts, by how much longer the second can wait.
    pairs = _ordered_pairs(step, placement, op_of_node, item)
    before, after = pairs.T
    part = plan.problem.part_of_op()
    is_border = (part[before] != part[after]) & (part[before] != SHARED) & (part[after] != SHARED)
    can_wait_ns = step.slack_ns[after] - step.slack_ns[before]
    pairs = pairs[np.lexsort((after, -can_wait_ns, ~is_border, ~step.feeds_critical[before]))]
    while len(_edges_of_plan) >= _REMEMBERED:
        del _edges_of_plan[next(iter(_edges_of_plan))]
    _edges_of_plan[key] = op_of_node[_fewest(pairs, step.start_ns[pairs[:, 1]], excess)]
    return _edges_of_plan[key]


@eagerly()
def ordered_pairs(placement: Placement, item: Item | None = None) -> np.ndarray:
    """[K, 2] int32, pairs of ops whose order a plan decides: on one device, one after the other, when both were ready.

    Where the second became ready only after the first had begun, no order is needed, and there is no pair. On a device
    that runs several ops at once, an op that waited for another to begin comes after the op whose end let it begin. An
    op comes second in one pair at most. Arguments are those of ``order_edges``.
    """
    plan, op_of_node = fused_plan(placement)
    step = _Step.of(plan, simulator_inputs(plan.problem))
    return op_of_node[_ordered_pairs(step, placement, op_of_node, item)]


def with_edges(inputs: SimulatorInputs, edges: np.ndarray) -> SimulatorInputs:
    """The arrays of a graph with added edges [K, 2], tensors of 0 bytes; ops are renumbered where edges need that.

    Raises:
      ValueError: the edges make a cycle.
    """
    if not len(edges):
        return inputs
    tensors = len(inputs.tensor_producer)
    tensor = tensor_of_edge(inputs.consumer_offset)
    graph_edges = np.stack([inputs.tensor_producer[tensor], inputs.consumer_op], axis=1)
    order = topological_order(inputs.num_ops, np.concatenate([graph_edges, edges]))
    if len(order) != inputs.num_ops:
        raise ValueError("the edges make a cycle")
    number = np.argsort(order)
    # A tensor without readers keeps its place by an edge to its own producer.
    unread = np.flatnonzero(np.diff(inputs.consumer_offset) == 0)
    self_edges = np.repeat(inputs.tensor_producer[unread, np.newaxis], 2, axis=1)
    _, of_edge = np.unique(edges[:, 0], return_inverse=True)
    ids = np.concatenate([tensor, unread, tensors + of_edge])
    num_bytes = np.append(inputs.tensor_bytes, np.zeros(len(edges), np.int64))
    table = tensor_table(number[np.concatenate([graph_edges, self_edges, edges])], ids, num_bytes[ids])
    place = np.zeros(tensors + len(edges), np.int64)
    place[table.output] = np.arange(len(table.output))
    alias = np.append(inputs.alias_of_tensor, np.full(len(edges), -1))[table.output]
    return dataclasses.replace(
        inputs,
        unit_of_op=inputs.unit_of_op[order],
        compute_ns=inputs.compute_ns[order],
        priority=inputs.priority[order],
        tensor_producer=table.producer,
        tensor_bytes=table.num_bytes,
        alias_of_tensor=np.where(alias < 0, -1, place[alias]),
        consumer_offset=table.consumer_offset,
        consumer_op=table.consumer_op,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Step:
    """A simulated step of a plan of N ops on D devices."""

    problem: Problem
    device: np.ndarray  # [N]
    runtime_ns: int
    peak_bytes: np.ndarray  # [D]
    start_ns: np.ndarray  # [N]
    end_ns: np.ndarray  # [N]
    ready_ns: np.ndarray  # [N], when all inputs of an op were on its device
    slack_ns: np.ndarray  # [N], how much later an op could end if nothing else waited for its device
    feeds_critical: np.ndarray  # [N] bool, a transfer of its output could not wait long

    @staticmethod
    def of(placement: Placement, inputs: SimulatorInputs) -> _Step:
        problem, plan = placement.problem, placement.decisions
        step = simulate(inputs, plan.device_of_unit, plan.priority_of_op, with_legs=True)
        start_ns, end_ns, leg_end_ns = (
            value.numpy()[0] for value in (step.start_ns, step.end_ns, step.leg_end_ns)
        )
        runtime_ns, graph, device = int(step.runtime_ns[0]), problem.op_graph, placement.device_of_op
        source, target = device[graph.producer], device[graph.consumer]
        crosses = source != target
        crossed_ns = leg_end_ns[_CROSSES, graph.tensor, target] + inputs.link_tensor_ns[source, target]
        received_ns = leg_end_ns[_IS_RECEIVED, graph.tensor, target]
        transferred_ns = np.where(received_ns >= 0, received_ns, crossed_ns)
        arrival_ns = np.where(crosses, transferred_ns, end_ns[graph.producer])
        ready_ns = np.zeros(problem.num_ops, np.int64)
        np.maximum.at(ready_ns, graph.consumer, arrival_ns)
        crossing_ns = (arrival_ns - end_ns[graph.producer]).tolist()
        # Longest way from the end of each op to the end of the step; plain lists, because producers ascend.
        op_ns, after_ns = (end_ns - start_ns).tolist(), [0] * problem.num_ops
        edges = zip(graph.producer.tolist(), graph.consumer.tolist(), crossing_ns, strict=True)
        for producer, consumer, edge_ns in reversed(list(edges)):
            after_ns[producer] = max(after_ns[producer], edge_ns + op_ns[consumer] + after_ns[consumer])
        slack_ns = runtime_ns - end_ns - np.array(after_ns, np.int64)
        waits_ns = slack_ns[graph.consumer] + start_ns[graph.consumer] - arrival_ns
        feeds_critical = np.zeros(problem.num_ops, bool)
        feeds_critical[graph.producer[crosses & (waits_ns <= _CRITICAL * runtime_ns)]] = True
        return _Step(
            problem=problem,
            device=device,
            runtime_ns=runtime_ns,
            peak_bytes=step.peak_bytes.numpy()[0],
            start_ns=start_ns,
            end_ns=end_ns,
            ready_ns=ready_ns,
            slack_ns=slack_ns,
            feeds_critical=feeds_critical,
        )


def _ordered_pairs(
    step: _Step, placement: Placement, op_of_node: np.ndarray, item: Item | None
) -> np.ndarray:
    """``ordered_pairs`` of nodes: ops and clusters."""
    takes_edges = step.end_ns > step.start_ns
    if item is not None:
        takes_edges &= ~_bound_ops(placement.problem, item)[op_of_node]
    pairs_of_devices = [_NONE]
    for device in range(step.problem.num_devices):
        ops = np.flatnonzero(takes_edges & (step.device == device))
        if not len(ops):
            continue
        by_end = ops[np.argsort(step.end_ns[ops], kind="stable")]
        ended = np.searchsorted(step.end_ns[by_end], step.start_ns[ops], side="right") - 1
        before = by_end[np.maximum(ended, 0)]
        starts_ns = np.sort(step.start_ns[ops])
        begun = np.searchsorted(starts_ns, step.start_ns[ops], side="left") - 1
        # Times are above 0, so the start grows along every edge: with the graph's own edges there is no cycle.
        waited = (ended >= 0) & (begun >= 0) & (starts_ns[np.maximum(begun, 0)] >= step.ready_ns[ops])
        pairs_of_devices.append(np.stack([before, ops], axis=1)[waited].astype(np.int32))
    pairs = np.concatenate(pairs_of_devices)
    return pairs if item is None else pairs[~_closes_loop(op_of_node[pairs], placement, item.index)]


def _bound_ops(problem: Problem, item: Item) -> np.ndarray:
    """[N] bool: ops that may take no edge.

    In a loop of TensorFlow 1 an op runs many times. A loop, branch or call of functions runs as simpler ops, some of
    which wait for less. An op that a branch of TensorFlow 1 skips would skip its successors as well. Ops of this
    process, arguments and variables are moved or replaced when a graph becomes a program. An op that waits for another,
    such as a queue, might wait for an op behind it.
    """
    index = item.index
    in_loop = np.array(outermost_loops(index)) >= 0
    types = np.array(index.op_types)
    bound = in_loop | np.isin(types, list(_REPLACED | _LOWERED))
    waiting = [
        op_type
        for op_type in set(index.op_types) - _COMPUTES
        if (definition := op_definition(op_type)) is None or definition.is_stateful
    ]
    bound |= np.isin(types, waiting)
    bound[[index.id_of_name[feed.node] for feed in item.feeds]] = True
    host_ops = [index.id_of_name[name] for name in item.host_ops]
    bound |= np.isin(problem.unit_of_op, problem.unit_of_op[host_ops])
    switches = [op for op in np.flatnonzero(np.isin(types, list(_SWITCHES))).tolist() if not in_loop[op]]
    if switches:
        conditional = reached(
            switches, lambda op: () if index.op_types[op] in MERGES else index.consumers[op]
        )
        bound[list(conditional)] = True
    return bound


def _closes_loop(pairs: np.ndarray, placement: Placement, index: GraphIndex) -> np.ndarray:
    """[K] bool, pairs that make a cycle through a loop of TensorFlow 1.

    Every op of such a loop may depend on all inputs of the loop, while a simulated step passes the loop once.
    """
    loop = np.array(outermost_loops(index))
    if not (loop >= 0).any():
        return np.zeros(len(pairs), bool)
    clusters = placement.cluster_of_op
    node = np.arange(index.num_ops) if clusters is None else contracted(index.edges, clusters)[0]
    node = np.where(loop >= 0, loop, node)
    ends = node[np.concatenate([index.edges, pairs])]
    graph = scipy.sparse.coo_matrix(
        (np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(index.num_ops, index.num_ops)
    )
    _, component = scipy.sparse.csgraph.connected_components(graph, connection="strong")
    before, after = component[node[pairs]].T
    return before == after


def _fewest(pairs: np.ndarray, when_ns: np.ndarray, excess: Callable[[np.ndarray], float]) -> np.ndarray:
    """A small subset of pairs without excess; where all pairs have some, the prefix with the least.

    Args:
      pairs: [K, 2], the most important first.
      when_ns: [K], when the second op of each starts.
      excess: of a subset, 0 for none.
    """
    if excess(_NONE) == 0:
        return _NONE
    if excess(pairs) > 0:
        # Priorities are more than an order of ops where devices have several streams, or sends wait among the ops.
        shares = [pairs[: len(pairs) * share // _SHARES] for share in range(_SHARES + 1)]
        return min(shares, key=excess)
    low, high = 0, len(pairs)  # ``low`` pairs have an excess, ``high`` have none
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(pairs[:middle]) else (low, middle)
    prefix, is_kept, removals = pairs[:high], np.ones(high, bool), 0
    # A pair in a chain of pairs is of little use without the others, so stretches of time are removed.
    chunks = collections.deque(np.array_split(np.argsort(when_ns[:high], kind="stable"), min(_CHUNKS, high)))
    while chunks and removals < _REMOVALS:
        chunk = chunks.popleft()
        removals += 1
        is_kept[chunk] = False
        if excess(prefix[is_kept]):
            is_kept[chunk] = True
            if len(chunk) > 1:
                chunks.extend(np.array_split(chunk, 2))
    return prefix[is_kept]
