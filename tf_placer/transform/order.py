"""An order of execution as control edges: as few as keep the simulated step of a plan's priorities."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.sparse

from colocation.constraints import op_definition, outermost_loops
from colocation.op_facts import (
    BRANCHES,
    CALLS,
    LOOPS,
    MERGES,
    GraphIndex,
    having,
    reached,
    topological_order,
)
from tf_placer.base.eager import eagerly
from tf_placer.graph.item import Item
from tf_placer.graph.program import SHARED
from tf_placer.ops.simulator import Simulation, SimulatorInputs, simulate, simulate_step
from tf_placer.problem.check_arrays import tensor_of_edge, tensor_table
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.problem.simulator_inputs import simulator_inputs
from tf_placer.transform.fusion.clusters import contracted
from tf_placer.transform.fusion.costs import as_simulated

WITHIN = 0.01
"""Share by which step and peaks with the edges may exceed those with the priorities."""

_NONE = np.zeros((0, 2), np.int32)
_CRITICAL = 0.05  # share of the step that a critical send can wait at most
_CROSSES, _IS_RECEIVED = 1, 2  # legs of a transfer (``simulate_step``)
_REMOVALS = 64  # simulations after the search for the shortest prefix
_CHUNKS = 8  # stretches of the step that are tried first, half as long after each round
_SHARES = 4  # of the pairs that are tried where all of them do not keep the step

_SWITCHES = having("switch")
# What has a formula of its work does nothing but compute; what has none and keeps state may wait for another op.
_COMPUTES = having("work")
_LOWERED = LOOPS | BRANCHES | CALLS  # parts of these begin before what the whole waits for
_REPLACED = (
    having("held_elsewhere") | having("variable") | having("iterator_read")
)  # when a graph is made a program


@eagerly()
def order_edges(placement: Placement, item: Item | None = None) -> np.ndarray:
    """Control edges by which a runtime without priorities executes a plan in their order.

    Of all ``ordered_pairs``, those that make a send earlier for which the step waits come first, then borders of parts
    of the batch, then the others by how much longer the later op could wait. The fewest of these are taken with which
    step and peaks of memory, simulated without priorities, are within ``WITHIN`` of those with them. Then stretches of
    the step in which none are needed are left without.

    Args:
      placement: a plan; one without priorities gives no edge.
      item: its program, whose loops and moved ops take no edges; None where the problem is of no TensorFlow graph.

    Returns:
      [K, 2] int32: op, and the op on its device that is to run after it. With the graph they have no cycle. A cluster,
      which is one op, is told by the first of its ops.
    """
    if placement.priority_of_op is None:
        return _NONE
    plan, op_of_node = as_simulated(placement)
    inputs = simulator_inputs(plan.problem)
    step = _Step.of(plan, inputs)
    pairs = step.by_importance(_ordered_pairs(step, placement, op_of_node, item))
    most_ns = step.runtime_ns * (1 + WITHIN)
    most_bytes = step.peak_bytes * (1 + WITHIN)

    def exceeds(edges: np.ndarray) -> float:
        found = simulate_with_edges(inputs, plan.device_of_unit, edges)
        runtime_ns, peak_bytes = (value.numpy()[0] for value in found)
        over = (peak_bytes - most_bytes) / np.maximum(most_bytes, 1)
        return max(float(over.max()), float((runtime_ns - most_ns) / max(most_ns, 1)), 0.0)

    return op_of_node[_fewest(pairs, step.start_ns[pairs[:, 1]], exceeds)]


@eagerly()
def ordered_pairs(placement: Placement, item: Item | None = None) -> np.ndarray:
    """Pairs of ops that a plan's order is about: on one device, one after the other, when both were ready.

    Where the second became ready only after the first had begun, no order is needed, and there is no pair. On a device
    that runs several ops at once, an op that waited for another to begin comes after the one whose end let it begin.

    Args:
      placement: a plan.
      item: as for ``order_edges``.

    Returns:
      [K, 2] int32, at most one pair for each op that comes second.
    """
    plan, op_of_node = as_simulated(placement)
    step = _Step.of(plan, simulator_inputs(plan.problem))
    return op_of_node[_ordered_pairs(step, placement, op_of_node, item)]


def simulate_with_edges(inputs: SimulatorInputs, device_of_unit: np.ndarray, edges: np.ndarray) -> Simulation:
    """Simulates one placement [U] of a graph with more edges, each a tensor of 0 bytes, and without priorities."""
    return simulate(with_edges(inputs, edges), np.asarray(device_of_unit)[np.newaxis])


def with_edges(inputs: SimulatorInputs, edges: np.ndarray) -> SimulatorInputs:
    """The arrays of a graph with more edges [K, 2]; ops have new numbers, in the order of the old where that goes.

    Raises:
      ValueError: the edges make a cycle.
    """
    if not len(edges):
        return inputs
    tensors = len(inputs.tensor_producer)
    tensor = tensor_of_edge(inputs.consumer_offset)
    given = np.stack([inputs.tensor_producer[tensor], inputs.consumer_op], axis=1)
    order = topological_order(inputs.num_ops, np.concatenate([given, edges]))
    if len(order) != inputs.num_ops:
        raise ValueError("the edges make a cycle")
    number = np.argsort(order)
    # A tensor that nobody reads keeps a place, by an edge to its own producer.
    unread = np.flatnonzero(np.diff(inputs.consumer_offset) == 0)
    alone = np.repeat(inputs.tensor_producer[unread, np.newaxis], 2, axis=1)
    _, of_edge = np.unique(edges[:, 0], return_inverse=True)
    ids = np.concatenate([tensor, unread, tensors + of_edge])
    num_bytes = np.append(inputs.tensor_bytes, np.zeros(len(edges), np.int64))
    table = tensor_table(number[np.concatenate([given, alone, edges])], ids, num_bytes[ids])
    table = table.without_self_consumers()
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
    """A simulated step of a plan.

    Attributes:
      problem: what is placed.
      device: [N] of each op.
      runtime_ns, peak_bytes: of the step; [D].
      start_ns, end_ns: [N] of each op.
      ready_ns: [N], when all that an op reads was on its device.
      slack_ns: [N], how much later an op could end, if nothing else waited for its device.
      feeds_critical: [N] bool, a transfer of its output could not wait long.
    """

    problem: Problem
    device: np.ndarray
    runtime_ns: int
    peak_bytes: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    ready_ns: np.ndarray
    slack_ns: np.ndarray
    feeds_critical: np.ndarray

    @staticmethod
    def of(placement: Placement, inputs: SimulatorInputs) -> _Step:
        """Simulates it."""
        problem, plan = placement.problem, placement.decisions
        step = simulate_step(inputs, plan.device_of_unit, plan.priority_of_op)
        start_ns, end_ns, leg_end_ns = (
            value.numpy()[0] for value in (step.start_ns, step.end_ns, step.leg_end_ns)
        )
        runtime_ns, graph, device = int(step.runtime_ns[0]), problem.op_graph, placement.device_of_op
        source, target = device[graph.producer], device[graph.consumer]
        crosses = source != target
        crossed_ns = leg_end_ns[_CROSSES, graph.tensor, target] + inputs.link_tensor_ns[source, target]
        received_ns = leg_end_ns[_IS_RECEIVED, graph.tensor, target]
        there_ns = np.where(received_ns >= 0, received_ns, crossed_ns)
        arrival_ns = np.where(crosses, there_ns, end_ns[graph.producer])
        ready_ns = np.zeros(problem.num_ops, np.int64)
        np.maximum.at(ready_ns, graph.consumer, arrival_ns)
        after_ns = _longest_after(problem, end_ns - start_ns, arrival_ns - end_ns[graph.producer])
        slack_ns = runtime_ns - end_ns - after_ns
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

    def by_importance(self, pairs: np.ndarray) -> np.ndarray:
        """Pairs [K, 2] sorted: for critical sends, at borders of parts, by how much longer the second can wait."""
        before, after = pairs.T
        part, splitting = np.full(self.problem.num_ops, SHARED), self.problem.splitting
        if splitting is not None:
            part = np.array([splitting.part_of(name) for name in self.problem.op_names])
        is_border = (part[before] != part[after]) & (part[before] != SHARED) & (part[after] != SHARED)
        can_wait_ns = self.slack_ns[after] - self.slack_ns[before]
        return pairs[np.lexsort((after, -can_wait_ns, ~is_border, ~self.feeds_critical[before]))]


def _longest_after(problem: Problem, op_ns: np.ndarray, edge_ns: np.ndarray) -> np.ndarray:
    """[N] int64: longest way from the end of each op to the end of the step, by times of ops [N] and edges [E]."""
    graph, took_ns = problem.op_graph, op_ns.tolist()
    after_ns = [0] * problem.num_ops
    edges = zip(graph.producer.tolist(), graph.consumer.tolist(), edge_ns.tolist(), strict=True)
    for producer, consumer, crossing_ns in reversed(list(edges)):  # producers ascend
        found = crossing_ns + took_ns[consumer] + after_ns[consumer]
        if after_ns[producer] < found:
            after_ns[producer] = found
    return np.array(after_ns, np.int64)


def _ordered_pairs(
    step: _Step, placement: Placement, op_of_node: np.ndarray, item: Item | None
) -> np.ndarray:
    """As ``ordered_pairs``, of nodes."""
    takes_edges = step.end_ns > step.start_ns
    if item is not None:
        takes_edges &= ~_bound_ops(placement.problem, item)[op_of_node]
    found = [_NONE]
    for device in range(step.problem.num_devices):
        ops = np.flatnonzero(takes_edges & (step.device == device))
        if not len(ops):
            continue
        by_end = ops[np.argsort(step.end_ns[ops], kind="stable")]
        ended = np.searchsorted(step.end_ns[by_end], step.start_ns[ops], side="right") - 1
        before = by_end[np.maximum(ended, 0)]
        starts_ns = np.sort(step.start_ns[ops])
        begun = np.searchsorted(starts_ns, step.start_ns[ops], side="left") - 1
        # Work times are above 0, so along an edge the start grows: with the graph's own edges no cycle closes.
        waited = (ended >= 0) & (begun >= 0) & (starts_ns[np.maximum(begun, 0)] >= step.ready_ns[ops])
        found.append(np.stack([before, ops], axis=1)[waited].astype(np.int32))
    pairs = np.concatenate(found)
    return pairs if item is None else pairs[~_closes_loop(op_of_node[pairs], placement, item.index)]


def _bound_ops(problem: Problem, item: Item) -> np.ndarray:
    """[N] bool: ops that may take no edge.

    In a loop of TensorFlow 1 an op runs many times; one of functions is run as simpler ops, of which some wait for
    less. What a branch of TensorFlow 1 leaves out would leave out what waits for it, too. Ops of this process,
    arguments and constants are moved or replaced when a graph is made a program. One that waits for another, such as a
    queue, might wait for what waits for it.
    """
    index = item.index
    in_loop = np.array(outermost_loops(index)) >= 0
    types = np.array(index.op_types)
    bound = in_loop | np.isin(types, list(_REPLACED | _LOWERED))
    unknown = sorted(set(index.op_types) - _COMPUTES)
    waiting = [
        kind for kind in unknown if (definition := op_definition(kind)) is None or definition.is_stateful
    ]
    bound |= np.isin(types, waiting)
    fed = [index.id_of_name[feed.node] for feed in item.feeds]
    bound[fed] = True
    here = [index.id_of_name[name] for name in item.host_ops]
    bound |= np.isin(problem.unit_of_op, problem.unit_of_op[here])
    switches = [op for op in np.flatnonzero(np.isin(types, list(_SWITCHES))).tolist() if not in_loop[op]]
    if switches:
        conditional = reached(
            switches, lambda op: () if index.op_types[op] in MERGES else index.consumers[op]
        )
        bound[list(conditional)] = True
    return bound


def _closes_loop(pairs: np.ndarray, placement: Placement, index: GraphIndex) -> np.ndarray:
    """[K] bool, pairs that make a cycle through a loop of TensorFlow 1, all of which may depend on all that enters it.

    A simulated step passes such a loop once, and so knows nothing of what its first outputs owe to its last inputs.
    """
    loop = np.array(outermost_loops(index))
    if not (loop >= 0).any():
        return np.zeros(len(pairs), bool)
    fused = placement.cluster_of_op
    node = np.arange(index.num_ops) if fused is None else contracted(index, fused)[0]
    node = np.where(loop >= 0, loop, node)
    ends = node[np.concatenate([index.edges, pairs])]
    graph = scipy.sparse.coo_matrix(
        (np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(index.num_ops, index.num_ops)
    )
    _, component = scipy.sparse.csgraph.connected_components(graph, connection="strong")
    first, second = component[node[pairs]].T
    return first == second


def _fewest(pairs: np.ndarray, when_ns: np.ndarray, exceeds: Callable[[np.ndarray], float]) -> np.ndarray:
    """Few of the pairs [K, 2], the first first, that exceed nothing; where all do, those that exceed least.

    Args:
      pairs: the most important first.
      when_ns: [K], when the second op of each starts.
      exceeds: by how much some of them exceed what they may, 0 for nothing.
    """
    if exceeds(_NONE) == 0:
        return _NONE
    if exceeds(pairs) > 0:
        # Priorities are more than an order of ops where devices have several streams, or sends wait among the ops.
        shares = [pairs[: len(pairs) * share // _SHARES] for share in range(_SHARES + 1)]
        return min(shares, key=exceeds)
    low, high = 0, len(pairs)  # ``low`` of them exceed, ``high`` do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exceeds(pairs[:middle]) else (low, middle)
    kept, is_kept, left = pairs[:high], np.ones(high, bool), _REMOVALS
    # A pair in a row of pairs is of little use without the others, so rows are left out, by time.
    chunks = collections.deque(np.array_split(np.argsort(when_ns[:high], kind="stable"), min(_CHUNKS, high)))
    while chunks and left:
        chunk = chunks.popleft()
        left -= 1
        is_kept[chunk] = False
        if exceeds(kept[is_kept]):
            is_kept[chunk] = True
            if len(chunk) > 1:
                chunks.extend(np.array_split(chunk, 2))
    return kept[is_kept]
