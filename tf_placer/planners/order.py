"""Orders of execution: rules, by a graph and in part by a placement; and a search of order and devices at once."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tf_placer.ops.simulator import NEVER, Chains, ChainSearch
from tf_placer.planners.local_search import Burst, LocalSearchConfig, chance, move_tables, random_state
from tf_placer.problem.placement import Decisions, ranked
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


# The settings were tuned on ten job shops.
_ORDER = 0.6  # share of rounds that change the order
_PATH = 0.7  # share of the others that begin on the critical path
_REMEMBERED = 50  # rounds in the first turn, twice as many in each
_LONG, _GROWTH = 15, 1.2  # until there are so many for each op, and then
_MOST_REMEMBERED = 2**16
_ROUNDS = 20  # of a chain in a turn, for each that is remembered
_BEHIND = 0.03  # share by which a chain may be slower than the fastest, before it takes that one's plan
# Shares by which a chain may be slower at first, in long turns.
_SETBACKS = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
_FITS_NOT = NEVER // 4


class OrderSearch:
    """Chains of late acceptance that change the order on the critical path, or the devices of a piece.

    Half of the chains keep devices busy at first: of what is ready, the first in the order runs. The others decide
    sequences, and a device waits for its next op, as in some optimum always (Giffler & Thompson 1960). In turns that
    get longer each chain goes on from its best plan, or the best of all where that is clearly faster.
    """

    def __init__(
        self, start: Decisions, problem: Problem, config: object, begins: object, seed: int, simulator: Any
    ) -> None:
        """Begins at a plan of one row; ``config`` and ``begins`` are not looked at."""
        self._simulator, self._seed = simulator, seed
        tables = dataclasses.replace(
            move_tables(problem, LocalSearchConfig()), path_chance=chance(_PATH), order_chance=chance(_ORDER)
        )
        self._search = ChainSearch(simulator.orders, tables, problem.cluster.capacity_bytes())
        start_ns = np.asarray(simulator.schedule(start).start_ns)[0]
        ranks = ranked(start_ns, np.arange(len(start_ns)))
        modes = Decisions([start.device_of_unit[0]] * 2, [ranks, ranks - len(ranks)])
        sum_ns = np.rint(simulator.evaluate(modes).runtime_s * 1e9 * len(simulator.orders))
        modes_ns = np.nan_to_num(sum_ns, nan=_FITS_NOT).astype(np.int64)
        chain = np.arange(max(2, len(os.sched_getaffinity(0)))) % 2
        self._best, self._best_ns = [modes.row(row) for row in chain.tolist()], modes_ns[chain]
        self._generator = np.random.default_rng(seed)
        self._turn = 0
        self._late, self._long = _REMEMBERED, _LONG * problem.num_ops
        self._made = 0  # in this turn
        self._chains = Chains.starting(start.device_of_unit, 1, [])
        self._begin()

    def advance(self, evaluations: int) -> Burst:
        """Judges so many plans more, all chains together."""
        remaining, number = evaluations, len(self._best)
        while remaining:
            length = number * _ROUNDS * self._late
            if self._made == length:
                self._begin()
                continue
            count = min(remaining, length - self._made)
            until = -(-(self._made + count - np.arange(number)) // number)
            self._chains, _ = self._search.advance(self._chains, until + 1 - self._chains.rounds)
            self._made += count
            remaining -= count
        best_ns = self._chains.best_runtime_ns
        return Burst(
            self._chains.best_device_of_unit,
            np.where(best_ns >= _FITS_NOT, np.inf, best_ns / (1e9 * len(self._simulator.orders))),
            evaluations,
            self._chains.best_priority_of_op,
        )

    def _begin(self) -> None:
        """The next turn: each chain at its best plan or the best of all, and above."""
        if self._turn:
            chains = self._chains
            rows = zip(chains.best_device_of_unit, chains.best_priority_of_op, strict=True)
            self._best = [Decisions(device[np.newaxis], order[np.newaxis]) for device, order in rows]
            self._best_ns = chains.best_runtime_ns.copy()
            fastest = int(self._best_ns.argmin())
            self._late = min(int((2 if self._late < self._long else _GROWTH) * self._late), _MOST_REMEMBERED)
            for chain in np.flatnonzero(self._best_ns > self._best_ns[fastest] * (1 + _BEHIND)).tolist():
                self._best[chain], self._best_ns[chain] = self._best[fastest], self._best_ns[fastest]
        setbacks = self._generator.choice(_SETBACKS, len(self._best)) * min(1, self._late / self._long)
        self._turn, self._made = self._turn + 1, 0
        number = len(self._best)
        states = [random_state(self._seed, self._turn * number + chain) for chain in range(number)]
        best = Decisions.joined(self._best)
        assert best.priority_of_op is not None
        late_ns = (self._best_ns * (1 + setbacks)).astype(np.int64)
        bits = np.array(states, np.uint64).view(np.int64)
        self._chains = Chains(
            best.device_of_unit,
            best.device_of_unit,
            np.repeat(late_ns[:, np.newaxis], self._late, axis=1),
            np.stack([self._best_ns, self._best_ns, np.ones(number, np.int64), bits], axis=1),
            best.priority_of_op,
            best.priority_of_op,
        )
