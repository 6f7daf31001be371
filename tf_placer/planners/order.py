"""Rules for an order of execution: priorities of ops, by the graph and, where they ask for it, by a placement."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from tf_placer.base import arguments
from tf_placer.problem.decisions import ranked
from tf_placer.problem.problem import Problem
from tf_placer.transform.split.plans import part_of_op

_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients|grad_ys)(_\d+)?/")


def priorities(rule: str, problem: Problem, device_of_unit: np.ndarray, seed: int = 0) -> np.ndarray:
    """Priorities of a rule for one placement, as ``Decisions`` takes them.

    Args:
      rule: one of ``RULES``.
      problem: what is placed.
      device_of_unit: [U], for rules that look at what crosses.
      seed: of a rule that draws.

    Returns:
      [N] int32, lower runs first; ops of equal priority are left to the runtime.

    Raises:
      InputError: there is no such rule, or the placement is not of this problem.
    """
    arguments.one_of("rule", rule, tuple(RULES))
    problem.check_legal(device_of_unit)
    return RULES[rule](problem, np.asarray(device_of_unit), seed)


def _bottom_level(problem: Problem, device_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """Longest way to the end of the step first, on the fastest devices and without transfers (Graham 1969)."""
    return ranked(-problem.op_graph.bottom_level_ns)


def _heft_rank(problem: Problem, device_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """Upward rank of HEFT first: every tensor takes its mean time over the links (Topcuoglu et al. 2002)."""
    return ranked(-problem.op_graph.bottom_level_with_transfers_ns)


def _placed_level(problem: Problem, device_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """Longest way to the end of the step first, with the times and the transfers of the placement."""
    return ranked(-_Placed(problem, device_of_unit).level_ns)


def _critical_sends(problem: Problem, device_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """Ops first that lead to the next transfer behind which the longest way remains.

    After TicTac (Hashemi et al. 2019), which orders transfers by what waits for them; what leads to no transfer comes
    last. As ``placed_level``, but from the next transfer on, so that the way to it counts as little as it takes.
    """
    return ranked(-_Placed(problem, device_of_unit).after_next_send_ns())


def _all_forward(problem: Problem, device_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """Forward ops of all parts of the batch before backward ones, part by part (GPipe: Huang et al. 2019)."""
    return ranked(backward_ops(problem), part_of_op(problem))


def _one_forward_one_backward(problem: Problem, device_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """Backward ops as soon as they are ready, the first part of the batch first (PipeDream: Narayanan et al. 2019).

    A device without backward work goes on with forward work, and is never held back for the sake of memory.
    """
    return ranked(~backward_ops(problem), part_of_op(problem))


def _part_by_part(problem: Problem, device_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """All of the first part of the batch first, then of the second, and so on; what is shared before all of it."""
    return ranked(part_of_op(problem))


def _shuffled(problem: Problem, device_of_unit: np.ndarray, seed: int) -> np.ndarray:
    """Any order, the control."""
    return np.random.default_rng(seed).permutation(problem.num_ops).astype(np.int32)


Rule = Callable[[Problem, np.ndarray, int], np.ndarray]

RULES: Mapping[str, Rule] = {
    "all_forward": _all_forward,
    "bottom_level": _bottom_level,
    "critical_sends": _critical_sends,
    "heft_rank": _heft_rank,
    "one_forward_one_backward": _one_forward_one_backward,
    "part_by_part": _part_by_part,
    "placed_level": _placed_level,
    "shuffled": _shuffled,
}
"""Rule -> the function that makes its priorities."""

OF_PARTS = ("all_forward", "one_forward_one_backward", "part_by_part")
"""Rules that say nothing of a batch that is whole."""


def rules_for(problem: Problem) -> tuple[str, ...]:
    """The rules that may gain on a problem: without the control, and those of parts only where there are parts."""
    left_out = {"shuffled"} if problem.splitting is not None else {"shuffled", *OF_PARTS}
    return tuple(rule for rule in RULES if rule not in left_out)


def backward_ops(problem: Problem) -> np.ndarray:
    """[N] bool: ops that TensorFlow's names say are of gradients, and all that waits for one of these."""
    found = [bool(_GRADIENT.search(name)) for name in problem.op_names]
    graph = problem.op_graph
    for producer, consumer in zip(graph.producer.tolist(), graph.consumer.tolist(), strict=True):
        found[consumer] = found[consumer] or found[producer]  # producers ascend, so theirs is known
    return np.array(found)


class _Placed:
    """Ways through the graph of a placement, with the times of its devices and its transfers over idle links."""

    def __init__(self, problem: Problem, device_of_unit: np.ndarray) -> None:
        self._graph = problem.op_graph
        device = device_of_unit[problem.unit_of_op]
        source, target = device[self._graph.producer], device[self._graph.consumer]
        self._crosses = source != target
        self._op_ns = problem.compute_ns[np.arange(problem.num_ops), device].astype(np.float64)
        self._edge_ns = self._graph.transfer.between_ns(self._graph.edge_bytes, source, target)

    @property
    def level_ns(self) -> np.ndarray:
        """[N] float64: the longest way from the beginning of each op to the end of the step."""
        after, took = [0.0] * self._graph.num_ops, self._op_ns.tolist()
        for producer, consumer, edge_ns in self._edges(self._edge_ns):
            after[producer] = max(after[producer], edge_ns + took[consumer] + after[consumer])
        return self._op_ns + np.array(after)

    def after_next_send_ns(self) -> np.ndarray:
        """[N] float64: the longest way from the next transfer, on any way from each op, to the end of the step."""
        from_send_ns = np.where(self._crosses, self._edge_ns + self.level_ns[self._graph.consumer], -1.0)
        found = [0.0] * self._graph.num_ops
        for producer, consumer, send_ns in self._edges(from_send_ns):
            found[producer] = max(found[producer], found[consumer] if send_ns < 0 else send_ns)
        return np.array(found)

    def _edges(self, of_edge: np.ndarray) -> list[tuple[int, int, float]]:
        """Producer, consumer and a value of each edge, so that what comes behind an op comes before it."""
        graph = self._graph
        edges = zip(graph.producer.tolist(), graph.consumer.tolist(), of_edge.tolist(), strict=True)
        return list(edges)[::-1]
