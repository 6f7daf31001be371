"""Orders of execution by rules: of a graph, and in part of a placement."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tf_placer.problem.placement import ranked
from tf_placer.problem.problem import Problem


def priorities(rule: str, problem: Problem, device_of_unit: np.ndarray, seed: int = 0) -> np.ndarray:
    """[N] int32 priorities of a rule for one placement [U]: lower runs first, equal ones are left to the runtime.

    Raises:
      InputError: the placement is not of this problem.
    """
    problem.check_legal(device_of_unit)
    return RULES[rule](problem, np.asarray(device_of_unit), seed)


RULES: Mapping[
    str, Callable[[Problem, np.ndarray, int], np.ndarray]
] = {  # of a problem, a plan's devices, a seed
    # Forward ops of all parts of the batch before backward ones, part by part (GPipe: Huang et al. 2019).
    "all_forward": lambda problem, row, seed: ranked(problem.backward_ops(), problem.part_of_op()),
    # Longest way to the end of the step first, on the fastest devices and without transfers (Graham 1969).
    "bottom_level": lambda problem, row, seed: ranked(-problem.op_graph.bottom_level_ns),
    # Ops first that lead to the next transfer behind which the longest way remains, and last what leads to none. After
    # TicTac (Hashemi et al. 2019), which orders transfers by what waits for them.
    "critical_sends": lambda problem, row, seed: ranked(-placed_ways_ns(problem, row)[1]),
    # Upward rank of HEFT first: every tensor takes its mean time over the links (Topcuoglu et al. 2002).
    "heft_rank": lambda problem, row, seed: ranked(-problem.op_graph.bottom_level_with_transfers_ns),
    # Backward ops as soon as they are ready, the first part of the batch first (PipeDream: Narayanan et al. 2019); no
    # device is held back for the sake of memory.
    "one_forward_one_backward": lambda problem, row, seed: ranked(
        ~problem.backward_ops(), problem.part_of_op()
    ),
    # All of the first part of the batch first, then of the second, and so on; what is shared before all of it.
    "part_by_part": lambda problem, row, seed: ranked(problem.part_of_op()),
    # Longest way to the end of the step first, with the times and the transfers of the placement.
    "placed_level": lambda problem, row, seed: ranked(-placed_ways_ns(problem, row)[0]),
    # Any order, the control.
    "shuffled": lambda problem, row, seed: (
        np.random.default_rng(seed).permutation(problem.num_ops).astype(np.int32)
    ),
}
OF_PARTS = ("all_forward", "one_forward_one_backward", "part_by_part")  # nothing, where a batch is whole


def rules_for(problem: Problem) -> tuple[str, ...]:
    """The rules that may gain on a problem: without the control, and rules of parts only where there are parts."""
    is_whole = problem.splitting is None or problem.splitting.parts == 1
    left_out = {"shuffled", *(OF_PARTS if is_whole else ())}
    return tuple(rule for rule in RULES if rule not in left_out)


def placed_ways_ns(problem: Problem, device_of_unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Longest ways to the end of the step, with the times of a plan's devices and its transfers over idle links.

    Returns:
      [N] float64, from the beginning of each op.
      [N] float64, from the next transfer on any way from each op; 0 where there is none.
    """
    graph, device = problem.op_graph, device_of_unit[problem.unit_of_op]
    source, target = device[graph.producer], device[graph.consumer]
    op_ns = problem.compute_ns[np.arange(problem.num_ops), device].astype(np.float64).tolist()
    edge_ns = graph.transfer.between_ns(graph.edge_bytes, source, target).tolist()
    crosses_of = (source != target).tolist()
    edges = zip(graph.producer.tolist(), graph.consumer.tolist(), edge_ns, crosses_of, strict=True)
    after, after_send = [0.0] * graph.num_ops, [0.0] * graph.num_ops
    # What comes behind an op is complete before it.
    for producer, consumer, send_ns, crosses in list(edges)[::-1]:
        after[producer] = max(after[producer], send_ns + op_ns[consumer] + after[consumer])
        from_send = send_ns + (op_ns[consumer] + after[consumer]) if crosses else after_send[consumer]
        after_send[producer] = max(after_send[producer], from_send)
    return np.array(op_ns) + np.array(after), np.array(after_send)
