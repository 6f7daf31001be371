"""Local search over connected pieces of the program, and plans of whole layers made of others."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, ClassVar

import numpy as np

from tf_placer.base.method_spec import Kind, NoSettings, Role, Settings, method, setting
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import Groups, costliest_ops, op_levels
from tf_placer.ops.simulator import NEVER, Chains, ChainSearch, MoveTables
from tf_placer.planners.list_schedule import heft, list_schedule, peft
from tf_placer.planners.plain import RandomBlocks, expert, single_device_placements, topological_fill
from tf_placer.planners.planner import Best, Resumable, Round
from tf_placer.problem.layers import Layers, layer_of_unit
from tf_placer.problem.placement import Decisions, ranked
from tf_placer.problem.problem import Problem, made_once
from tf_placer.problem.unit_graph import local_edges, unit_graph
from tf_placer.transform.split.plans import copies_of_units

_MOST = 2**20


@dataclasses.dataclass(frozen=True)
class LocalSearchConfig(Settings):
    """Settings for drawing and accepting moves."""

    # Searches side by side in the simulator, a thread each; 0: one on each core that the process may use. On an
    # evaluator that is no simulator there is one.
    chains: int = setting(0, least=0, most=_MOST)
    late: int = setting(200, least=1, most=_MOST)  # L: a move is accepted if no slower than L rounds ago
    largest_piece: float = setting(0.25, least=0, most=1)  # the most units that one move takes, of all
    swaps: float = setting(0.3, least=0, most=1)  # probability that a piece of as many units comes back
    # Probability that a piece grows over units of one kind: others wait for them, or they may wait (weight gradients).
    one_kind: float = setting(0.5, least=0, most=1)
    # Probability that the copies of a piece for other parts of the batch go along, and nothing comes back.
    copies: float = setting(0.5, least=0, most=1)
    # Probability that they go to the device of the piece; else to that which is as many places on among the devices of
    # its type as their part is after the piece's, so that copies that are spread out stay so.
    together: float = setting(0.6, least=0, most=1)


_CROSSING = 0.5  # probability that a piece grows from an end of a crossing edge, and not by work
_TOWARDS = 0.8  # that such a piece goes to the device at the other end, and not to any
_MASK = 2**64 - 1


def random_state(seed: int, stream: int) -> int:
    """State in [0, 2^64) of one of many independent generators of a seed (splitmix64, tf_placer/ops/cc/random_bits.h).

    It is what two of them, in turn, draw of the numbers (Steele, Lea & Flood 2014).
    """

    def drawn(state: int) -> int:
        z = (state + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    return drawn(drawn(seed & _MASK) ^ stream)


_SIZES = 256  # of the table that sizes are drawn from
_IDLE_WORK = 5  # a unit that costs nothing is drawn as often as one with a fifth of the mean work
_SLACK = 0.05  # a unit has slack when it can wait longer than this share of the critical path


def move_tables(problem: Problem, config: LocalSearchConfig) -> MoveTables:
    """Tables from which moves on a problem are drawn."""
    graph = unit_graph(problem)
    neighbors = local_edges(problem, graph).neighbors("both")
    slack = op_levels(problem).slack[costliest_ops(problem)]
    work_ns = problem.work_ns()
    work = work_ns + max(int(work_ns.sum()) // len(work_ns) // _IDLE_WORK, 1)
    largest = max(config.largest_piece * problem.num_units, 2.0)
    part_of_unit, copies = copies_of_units(problem)
    types = [device.type for device in problem.cluster.devices]
    turned = np.zeros((len(types), copies.shape[1]), np.int32)
    for device, kind in enumerate(types):
        alike = [d for d, type_of_device in enumerate(types) if type_of_device == kind]
        turned[device] = np.resize(np.roll(alike, -alike.index(device)), copies.shape[1])
    return MoveTables(
        edges=graph.edges,
        neighbor_offset=np.cumsum([0, *map(len, neighbors)]).astype(np.int32),
        neighbors=np.concatenate(neighbors).astype(np.int32),
        work_before=np.concatenate([[0], np.cumsum(work)]).astype(np.int64),
        # Log-uniform, from one unit to the largest piece.
        piece_sizes=(largest ** ((np.arange(_SIZES) + 0.5) / _SIZES)).astype(np.int32),
        allowed=problem.allowed,
        kind_of_unit=(slack > _SLACK).astype(np.int32),
        part_of_unit=part_of_unit,
        copies=copies,
        turned=turned,
        crossing_chance=chance(_CROSSING),
        towards_chance=chance(_TOWARDS),
        swap_chance=chance(config.swaps),
        kind_chance=chance(config.one_kind),
        copies_chance=chance(config.copies),
        together_chance=chance(config.together),
    )


def chance(probability: float) -> int:
    """Probability in units of 2^-32."""
    return round(probability * 2**32)


_CHAINS = 2
SECOND = 10**8  # ops simulated all together, if each step is simulated whole
_MOST_PASSES, _FEWEST_PASSES = 10_000, 100


@dataclasses.dataclass(frozen=True, eq=False)
class WholeLayers:
    """The fastest plan found of whole layers."""

    device_of_unit: np.ndarray  # [U] int32
    runtime_s: float  # its step time in the simulator
    peak_bytes: np.ndarray  # [D] int64, most memory in use on each device
    op_level_s: float  # step time of the plan that it was made of, in the same simulator


def whole_layers(problem: Problem, layers: Layers, plan: Decisions, seed: int = 0) -> WholeLayers | None:
    """Puts every layer on one device: where most of its time is in ``plan``, then better by a short local search.

    Units that may not be where the others of their layer are do not count. The search is of layers, within memory, and
    also begins at every single device. It simulates ``SECOND`` ops. What the plan decides beyond devices counts for its
    step time alone. None where no plan of whole layers that fits was found.
    """
    groups = Groups.of(problem, layer_of_unit(problem, layers))
    coarse = groups.coarse_problem()
    # Where the time is comes first: it wins a tie.
    most = groups.project(plan.device_of_unit[:1], problem.work_ns() + 1)
    starts = np.concatenate([most, single_device_placements(coarse)])
    simulator, config = SimulatedEvaluator(coarse), LocalSearchConfig(chains=_CHAINS)
    start = starts[np.argmin(simulator.evaluate(starts).runtime_s)]
    search = SimulatedLocalSearch(coarse, config, start, seed, simulator)
    best = Best()
    best.take(search.advance(int(np.clip(SECOND // problem.num_ops, _FEWEST_PASSES, _MOST_PASSES))))
    if best.plan is None:
        return None
    device_of_unit = groups.expand(best.plan.device_of_unit)[0]
    both = Decisions.joined([Decisions(device_of_unit[np.newaxis]), plan])
    measured = SimulatedEvaluator(problem).evaluate(both)
    assert measured.peak_bytes is not None  # simulated
    whole_s, op_level_s = measured.runtime_s[:2].tolist()
    return WholeLayers(device_of_unit, whole_s, measured.peak_bytes[0], op_level_s)


_DRAWN = 16


def cheap_starts(problem: Problem, start: np.ndarray, seed: int) -> np.ndarray:
    """[K, U] int32 distinct legal placements: ``start`` [U] or [K, U], constructed ones, and random blocks.

    List schedules, which take seconds in a large program, are among them where only one start is given.
    """
    begins = np.atleast_2d(np.asarray(start, np.int32))
    schedules = (list_schedule, heft, peft) if len(np.unique(begins, axis=0)) == 1 else ()
    planners = (*schedules, expert, topological_fill)
    built = [made_once(planner, problem, NoSettings(), seed) for planner in planners]
    drawn = RandomBlocks(problem, seed).draw(_DRAWN)
    rows = np.concatenate([begins, *built, single_device_placements(problem), drawn])
    return rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])].astype(np.int32)


CHAINS_STATE: dict[str, type] = {"device_of_unit": np.int32, "best_device_of_unit": np.int32}
CHAINS_STATE |= {"late_ns": np.int64, "counts": np.int64}


class SimulatedLocalSearch:
    """Chains of ``LocalSearch``, side by side and without Python between their rounds.

    Each chain proposes, simulates and decides in C++, on a thread of its own, and stops a simulation once the move
    cannot be accepted. Chain i of a seed is the same however many there are. Evaluation k is of chain k modulo C.
    """

    def __init__(
        self,
        problem: Problem,
        config: LocalSearchConfig,
        start: np.ndarray,
        seed: int,
        simulator: SimulatedEvaluator,
    ) -> None:
        """Chains start from ``start`` [U], or in turn from several [K, U]; ``simulator`` gives step times."""
        self._orders, tables = simulator.orders, move_tables(problem, config)
        self._search = ChainSearch(self._orders, tables, problem.cluster.capacity_bytes())
        number = config.chains or len(os.sched_getaffinity(0))
        states = [random_state(seed, chain) for chain in range(number)]
        self._chains = Chains.starting(start, config.late, states)

    def advance(self, evaluations: int) -> Round:
        """Judges so many placements more, all chains together; the best so far of each, inf s where none fitted."""
        chains = len(self._chains.counts)
        made = int(self._chains.rounds.sum())
        # Chain i has made (made - i) / C rounds, rounded up.
        until = -(-(made + evaluations - np.arange(chains)) // chains)
        self._chains, _ = self._search.advance(self._chains, until - self._chains.rounds)
        best_ns = self._chains.best_runtime_ns
        runtime_s = np.where(best_ns == NEVER, np.inf, best_ns / (1e9 * len(self._orders)))
        best = Decisions(self._chains.best_device_of_unit)
        return Round(best, runtime_s, np.isfinite(runtime_s), evaluations)

    def state(self) -> dict[str, Any]:
        """State of every chain."""
        return {name: getattr(self._chains, name) for name in CHAINS_STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave, with as many chains as there were."""
        self._chains = Chains(**{name: np.array(state[name], kind) for name, kind in CHAINS_STATE.items()})


_ORDER = 0.6  # share of rounds that change the order; this and what follows was tuned on ten job shops
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

    def advance(self, evaluations: int) -> Round:
        """Judges so many plans more, all chains together; the best so far of each, inf s where none fitted."""
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
        runtime_s = np.where(best_ns >= _FITS_NOT, np.inf, best_ns / (1e9 * len(self._simulator.orders)))
        best = Decisions(self._chains.best_device_of_unit, self._chains.best_priority_of_op)
        return Round(best, runtime_s, np.isfinite(runtime_s), evaluations)

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


@method(
    "local_search",
    Kind.IMPROVING,
    config=LocalSearchConfig,
    build_inside=SimulatedLocalSearch,
    roles={Role.PLAIN, Role.MEMBER},
    uses_start=True,
)
class LocalSearch(Resumable):
    """Late acceptance: moves one connected piece of a plan at a time (Burke & Bykov 2017).

    A move is kept if it is no slower than where the search is, or than where it was L rounds before.

    A piece is grown breadth first over units of one device, up to a size that is drawn log-uniformly: a single unit
    that leaves its neighbors only adds messages. Some moves bring a piece of as many units back in exchange (Kernighan
    & Lin 1970): where devices share the work evenly, one piece alone makes one of them the slower.

    It is one chain of ``SimulatedLocalSearch``, decision by decision, for evaluators that are no simulators.
    """

    _KEPT: ClassVar[dict[str, type]] = {"device_of_unit": np.int32, "runtime_s": float, "_late_s": np.float64}
    _KEPT |= {"_rounds": int, "_random_bits": int}

    def __init__(
        self, problem: Problem, config: LocalSearchConfig, start: np.ndarray, seed: int, chain: int = 0
    ) -> None:
        """Proposes the placement ``start`` [U] first; as chain ``chain`` of a seed."""
        # It draws one move at a time: where everything fits, and nothing is too slow, the simulator accepts each.
        everything_fits = np.full(problem.num_devices, NEVER)
        orders = SimulatedEvaluator(problem).orders
        self._moves = ChainSearch(orders[:1], move_tables(problem, config), everything_fits)
        self._random_bits = random_state(seed, chain)
        self.device_of_unit = np.array(start, np.int32)
        self.runtime_s = float("inf")
        self._late_s = np.full(config.late, np.inf)  # a ring
        self._rounds = 0

    def ask(self, most: float) -> np.ndarray:
        """[1, U] int32: the start, then a legal placement one move away from the current one."""
        if self._rounds == 0:
            return self.device_of_unit[np.newaxis]
        chain = Chains.starting(self.device_of_unit, 1, [self._random_bits])
        chain.rounds[:] = 1  # the first one would time the start
        moved, _ = self._moves.advance(chain, [1])
        self._random_bits = int(moved.counts[0, 3]) & _MASK
        return moved.device_of_unit

    def tell(self, decisions: Decisions, times: Round) -> None:
        """Accepts the fastest of the placements unless slower than now and than L rounds ago."""
        runtime_s = times.times_s
        fastest = int(np.argmin(runtime_s))
        if self._rounds == 0:
            self._late_s[:] = runtime_s[fastest]
        late = self._rounds % len(self._late_s)
        if runtime_s[fastest] <= max(self.runtime_s, self._late_s[late]):
            self.device_of_unit = np.array(decisions.device_of_unit[fastest], np.int32)
            self.runtime_s = float(runtime_s[fastest])
        self._late_s[late] = min(self._late_s[late], self.runtime_s)
        self._rounds += 1
