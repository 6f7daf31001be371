"""Predict Earliest Finish Time."""

from __future__ import annotations

import heapq

import numpy as np

from tf_placer.grouper.memory_repair import fitting
from tf_placer.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.planners.schedule import Schedule, first_op_decides, scheduled
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import fastest_devices


def peft(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """PEFT (Arabnejad & Barbosa 2014, list scheduling by an optimistic cost table), for units and within memory.

    Of the ready ops the one with the greatest mean cost in ``optimistic_cost_table`` is taken, and goes where its end
    and its entry of the table add up to least; it may start in a gap that earlier ones left. As in the paper any number
    of tensors cross at once. Departures: the first op of a unit decides for its unit, a variable goes with its first
    reader, a device without room is left out, and of each device the last 64 gaps are kept.

    The table is optimistic: it sees the longest way to the end of the step, with every op where that is best, and not
    that units bind ops, that devices and links are busy, or what fits. Of memory it knows what stays; peaks are an
    estimate.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit; K is 0 to 2 (``scheduled``).
    """
    table = optimistic_cost_table(problem)
    allowed = problem.allowed[problem.unit_of_op]
    rank = np.where(allowed, table, 0).sum(axis=1) / allowed.sum(axis=1)
    order = ready_order(problem, rank)
    after_ns = table.tolist()

    def run(schedule: Schedule) -> None:
        first_op_decides(
            problem, schedule, order, lambda op, device: schedule.end_ns(op, device) + after_ns[op][device]
        )

    return fitting(problem, scheduled(problem, fastest_devices(problem), run, gaps=True, queues=False))


def optimistic_cost_table(problem: Problem) -> np.ndarray:
    """[N, D] float64: the least time from the end of an op on a device to the end of the step, as far as one way goes.

    table(i, d) = max over readers j of min over devices e of (table(j, e) + time(j, e) + mean transfer(i, j) if e != d)
    """
    graph = problem.op_graph
    allowed = problem.allowed[problem.unit_of_op]
    # Once its readers are complete, an op's row is added to its time: what it takes from its beginning.
    from_begin = np.where(allowed, problem.compute_ns, np.inf)
    table = np.zeros(from_begin.shape)
    moves = graph.mean_transfer_ns.tolist()
    producers, readers = graph.tensor_producer.tolist(), graph.readers()
    tensor = len(producers) - 1
    for op in range(problem.num_ops - 1, -1, -1):
        row = table[op]
        while tensor >= 0 and producers[tensor] == op:
            if readers[tensor]:
                here = from_begin[readers[tensor]]
                best = np.minimum(here, here.min(axis=1, keepdims=True) + moves[tensor]).max(axis=0)
                np.maximum(row, best, out=row)
            tensor -= 1
        from_begin[op] += row
    return table


def ready_order(problem: Problem, rank: np.ndarray) -> np.ndarray:
    """[N] int64: a topological order that takes of the ready ops the one of the greatest rank [N]."""
    graph = problem.op_graph
    waits_for = np.bincount(graph.consumer, minlength=problem.num_ops).tolist()
    consumer, offset = graph.consumer.tolist(), graph.out_offset.tolist()
    keys = (-rank).tolist()
    ready = [(keys[op], op) for op in range(problem.num_ops) if not waits_for[op]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(op)
        for reader in consumer[offset[op] : offset[op + 1]]:
            waits_for[reader] -= 1
            if not waits_for[reader]:
                heapq.heappush(ready, (keys[reader], reader))
    return np.array(order, np.int64)


SPEC = MethodSpec(
    name="peft",
    kind=Kind.CONSTRUCTIVE,
    summary="PEFT: where an op's end and an optimistic rest of the step are least (Arabnejad & Barbosa 2014).",
    build=peft,
    ignores=(
        "later ops of a unit",
        "messages that wait for each other",
        "what cores do for messages",
        "peaks of memory",
    ),
    roles=frozenset({Role.MEMBER}),
    goes_on=False,
)
