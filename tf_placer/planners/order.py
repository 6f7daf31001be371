"""Rules for an order of execution: priorities of ops, by the graph and, where they ask for it, by a placement."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from tf_placer.problem.placement import ranked
from tf_placer.problem.problem import Problem
from tf_placer.transform.split.plans import part_of_op

_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients|grad_ys)(_\d+)?/")


def priorities(rule: str, problem: Problem, device_of_unit: np.ndarray, seed: int = 0) -> np.ndarray:
    """[N] int32 priorities of a rule for one placement [U]: lower runs first, equal ones are left to the runtime.

    Raises:
      InputError: the placement is not of this problem.
    """
    problem.check_legal(device_of_unit)
    return RULES[rule](problem, np.asarray(device_of_unit), seed)


RULES: Mapping[str, Callable[[Problem, np.ndarray, int], np.ndarray]] = {
    # Forward ops of all parts of the batch before backward ones, part by part (GPipe: Huang et al. 2019).
    "all_forward": lambda problem, row, seed: ranked(backward_ops(problem), part_of_op(problem)),
    # Longest way to the end of the step first, on the fastest devices and without transfers (Graham 1969).
    "bottom_level": lambda problem, row, seed: ranked(-problem.op_graph.bottom_level_ns),
    # Ops first that lead to the next transfer behind which the longest way remains. After TicTac (Hashemi et al. 2019),
    # which orders transfers by what waits for them; what leads to no transfer comes last. As ``placed_level``, but from
    # the next transfer on, so that the way to it counts as little as it takes.
    "critical_sends": lambda problem, row, seed: ranked(-placed_ways_ns(problem, row)[1]),
    # Upward rank of HEFT first: every tensor takes its mean time over the links (Topcuoglu et al. 2002).
    "heft_rank": lambda problem, row, seed: ranked(-problem.op_graph.bottom_level_with_transfers_ns),
    # Backward ops as soon as they are ready, the first part of the batch first (PipeDream: Narayanan et al. 2019). A
    # device without backward work goes on with forward work, and is never held back for the sake of memory.
    "one_forward_one_backward": lambda problem, row, seed: ranked(
        ~backward_ops(problem), part_of_op(problem)
    ),
    # All of the first part of the batch first, then of the second, and so on; what is shared before all of it.
    "part_by_part": lambda problem, row, seed: ranked(part_of_op(problem)),
    # Longest way to the end of the step first, with the times and the transfers of the placement.
    "placed_level": lambda problem, row, seed: ranked(-placed_ways_ns(problem, row)[0]),
    # Any order, the control.
    "shuffled": lambda problem, row, seed: (
        np.random.default_rng(seed).permutation(problem.num_ops).astype(np.int32)
    ),
}
"""Rule -> the function that makes its priorities, of a problem, the devices [U] of a plan, and a seed."""

OF_PARTS = ("all_forward", "one_forward_one_backward", "part_by_part")
"""Rules that say nothing of a batch that is whole."""


def rules_for(problem: Problem) -> tuple[str, ...]:
    """The rules that may gain on a problem: without the control, and rules of parts only where there are parts."""
    left_out = {"shuffled"} if problem.splitting is not None else {"shuffled", *OF_PARTS}
    return tuple(rule for rule in RULES if rule not in left_out)


def backward_ops(problem: Problem) -> np.ndarray:
    """[N] bool: ops that TensorFlow's names say are of gradients, and all that waits for one of these."""
    is_backward = [bool(_GRADIENT.search(name)) for name in problem.op_names]
    graph = problem.op_graph
    for producer, consumer in zip(graph.producer.tolist(), graph.consumer.tolist(), strict=True):
        is_backward[consumer] |= is_backward[producer]  # producers ascend, so theirs is known
    return np.array(is_backward)


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
    edges = zip(
        graph.producer.tolist(), graph.consumer.tolist(), edge_ns, (source != target).tolist(), strict=True
    )
    after, after_send = [0.0] * graph.num_ops, [0.0] * graph.num_ops
    # What comes behind an op is complete before it.
    for producer, consumer, send_ns, crosses in list(edges)[::-1]:
        after[producer] = max(after[producer], send_ns + op_ns[consumer] + after[consumer])
        from_send = send_ns + (op_ns[consumer] + after[consumer]) if crosses else after_send[consumer]
        after_send[producer] = max(after_send[producer], from_send)
    return np.array(op_ns) + np.array(after), np.array(after_send)
