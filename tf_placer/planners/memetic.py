"""Multilevel search: late acceptance over coarse groups, then finer ones, then units."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tf_placer.base.method_spec import Kind, Role, Settings, method, setting
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import Groups, cut_by_plans, repeated_groups, slack_groups
from tf_placer.ops.simulator import NEVER, Chains, ChainSearch
from tf_placer.planners import local_search
from tf_placer.planners.planner import Resumable, Round
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

_MOST = 2**20
LONGEST_LATE = _MOST  # rounds of a chain that are remembered at most


@dataclasses.dataclass(frozen=True)
class MemeticConfig(Settings):
    """Settings for the turns at each coarseness, and for the chains' acceptance."""

    # Searches side by side in the simulator, a thread each; 0: one on each core that the process may use. On an
    # evaluator that is no simulator there is one, over units.
    chains: int = setting(0, least=0, most=_MOST)
    # L: a move is accepted if no slower than the chain was L rounds ago; doubled by each turn of units that gained.
    late: int = setting(20, least=1, most=_MOST)
    repeats: bool = setting(True)  # what repeats is decided first, all layers alike (``repeated_groups``)
    parts: int = setting(64, least=2, most=_MOST)  # of the min cut at the coarsest level
    finer: int = setting(4, least=2, most=_MOST)  # times as many parts at each level after it
    levels: int = setting(3, least=0, most=10)  # of min-cut groups, before the units
    # Evaluations for what repeats, at the coarsest level, and where chains cross over; twice as many at each level
    # after that, units included, and twice as many after each turn of units that gained.
    turn: int = setting(1000, least=1, most=2**30)
    # Share of a chain's time by which its plans may be slower when a later turn begins; doubled by each turn of units
    # that gained nothing.
    setback: float = setting(0.01, least=0, most=1)
    # Probability that a piece grows from the critical path, in proportion to what its ops and transfers take.
    path: float = setting(0.4, least=0, most=1)
    draws: int = setting(8, least=1, most=1024)  # moves drawn for each that is simulated (``edit_weights``)
    uniform: float = setting(0.6, least=0, most=1)  # probability of one alone


_FILE = pathlib.Path(__file__).with_name("edit_weights.json")


@functools.cache
def edit_weights() -> np.ndarray:
    """[W] float32, in the order of tf_placer/ops/cc/edit_scorer.h.

    ``python -m experiments.edit_scorer`` makes them: anew whenever tf_placer/ops/cc/edit_features.cc changes.
    """
    weights: np.ndarray = np.array(json.loads(_FILE.read_text(encoding="utf-8")), np.float32)
    weights.flags.writeable = False
    return weights


STATE_VERSION = 3  # of what a search keeps: one that was saved with another cannot go on
_NO_WEIGHTS = np.zeros(0, np.float32)
_FEWEST_UNITS = 2  # times as many units as parts, or a level is left out
_FEWEST_REPEATED = 16  # groups of what repeats, or that level is: names say nothing, or hardly anything
_REPEATED_UNITS = 4096  # in fewer, single moves soon do as much
_REPEATED = 0  # a level, beside numbers of parts
_MUCH_FASTER = 0.8  # a start that takes this share of another's time leaves it out, whatever it cuts
_GAIN = 1e-3  # least gain of a turn of units that counts, as a share of the step time
_MOST_DOUBLED = 1000  # times, of a setback: long before that it is the whole step


class _Level(NamedTuple):
    """Search space of one turn: the placements of groups of units."""

    search: ChainSearch
    unit: np.ndarray  # [U] int32, the group of each unit


class SimulatedMemetic(Resumable):
    """Chains of local search that share what they find, from coarse to fine.

    Where there are groups, chains begin at the cheap starts that cut the fewest edges, unless another is much faster.
    The fastest comes back when units are searched. Of several given starts each chain begins at one.

    Levels are what repeats, so that one move is of all layers or time steps (``repeated_groups``), then min-cut parts
    split by slack (``slack_groups``), ever more of them, then units (multilevel search: Walshaw 2004). A group is cut
    where a chain's plan has it on several devices, so no level loses a plan.

    Then turns of units and short ones of the finest groups alternate. Groups are cut where two chains differ, so chains
    cross over by what does not make them slower (memetic search: Moscato 1989). A chain left behind goes on from the
    fastest. Each turn begins with a new history for late acceptance, a little above where the chain is. Turns and
    histories are twice as long after a turn of units that gained (Burke & Bykov 2017); after one that gained nothing
    all chains but the fastest begin at another start, and histories twice as far above.

    Some moves begin on the critical path. Of several (``draws``) a small network, trained on other steps
    (``edit_weights``), chooses the one to simulate. Turns are counted in evaluations, whatever the bursts.
    """

    _KEPT: ClassVar = dict.fromkeys(
        ("_turn", "_made", "_before_ns", "_doublings", "_stalls", "_restarts"), int
    )
    _KEPT |= {"_starts": np.int32, "_start_ns": np.int64, "_best": np.int32, "_best_ns": np.int64}

    def __init__(
        self,
        problem: Problem,
        config: MemeticConfig,
        start: np.ndarray,
        seed: int,
        simulator: SimulatedEvaluator,
        weights: np.ndarray | None = None,
    ) -> None:
        """Tries ``start`` first, [U] or several [K, U]; ``simulator`` gives step times.

        ``weights`` are of the network that chooses moves, where the config has any drawn; None for ``edit_weights``.
        """
        self._problem = problem
        self._config = config
        self._seed = seed
        self._simulator = simulator
        self._weights = _NO_WEIGHTS if config.draws == 1 else edit_weights() if weights is None else weights
        self._starts = local_search.cheap_starts(problem, start, seed)
        self._given = len(np.unique(np.atleast_2d(start), axis=0))
        self._start_ns = np.full(len(self._starts), NEVER)
        # Levels worth a turn, well below the units: what repeats, then numbers of min-cut parts.
        parts = [config.parts * config.finer**level for level in range(config.levels)]
        self._levels = [count for count in parts if _FEWEST_UNITS * count <= problem.num_units]
        if config.repeats and self._levels and problem.num_units >= _REPEATED_UNITS:
            groups = int(repeated_groups(problem).max()) + 1
            if _FEWEST_REPEATED <= groups <= problem.num_units // _FEWEST_UNITS:
                self._levels.insert(0, _REPEATED)
        self._units: _Level | None = None
        self._edges = unit_graph(problem).edges
        self._turn = 0  # 0 times the starts
        self._made = 0  # in this turn
        self._before_ns = NEVER  # the fastest plan when units were searched last
        self._doublings = 0  # of turns and memory
        self._stalls = 0  # turns of units one after the other that gained nothing
        self._restarts = 0  # of chains
        # Of the turn; and of each chain its best plan [C, U] and time [C].
        self._level: _Level
        self._chains: Chains
        self._best: np.ndarray
        self._best_ns: np.ndarray
        self._take_starts()

    def advance(self, evaluations: int) -> Round:
        """Judges so many placements more, all chains together; the best of each and the fastest start."""
        left, ns_per_s = evaluations, 1e9 * len(self._simulator.orders)  # times are sums over the orders
        while left:
            if self._made == self._turn_length():
                self._begin(self._turn + 1)
            count = min(left, self._turn_length() - self._made)
            if self._turn:
                number = len(self._best)
                until = -(-(self._made + count - np.arange(number)) // number)
                # A chain that begins a turn has made the round that timed where it is.
                self._chains = self._advanced(self._level.search, until + 1 - self._chains.rounds)
                self._best = self._chains.best_device_of_unit[:, self._level.unit]
                self._best_ns = self._chains.best_runtime_ns
            else:
                timed = slice(self._made, self._made + count)
                sum_ns = np.rint(self._simulator.evaluate(self._starts[timed]).runtime_s * ns_per_s)
                whole_ns = np.nan_to_num(sum_ns).astype(np.int64)
                self._start_ns[timed] = np.where(np.isnan(sum_ns), NEVER, whole_ns)
                self._take_starts()
            self._made += count
            left -= count
        rows, best_ns = self._with_fastest_start()
        runtime_s = np.where(best_ns == NEVER, np.inf, best_ns / ns_per_s)
        return Round(Decisions(rows), runtime_s, np.isfinite(runtime_s), evaluations)

    def _with_fastest_start(self) -> tuple[np.ndarray, np.ndarray]:
        """The chains' best plans and the fastest start, and their times in nanoseconds."""
        fastest = int(np.argmin(self._start_ns))
        rows = np.concatenate([self._best, self._starts[fastest : fastest + 1]])
        return rows, np.append(self._best_ns, self._start_ns[fastest])

    def state(self) -> dict[str, Any]:
        """State of every chain, now and at the beginning of its turn."""
        state = super().state()
        if self._turn:
            chains = {f"chains_{name}": getattr(self._chains, name) for name in local_search.CHAINS_STATE}
            state |= {"unit": self._level.unit, **chains}
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave, with as many chains as there were."""
        super().restore(state)
        if self._turn:
            kinds = local_search.CHAINS_STATE.items()
            self._chains = Chains(**{name: np.array(state[f"chains_{name}"], kind) for name, kind in kinds})
            self._level = self._level_of(np.array(state["unit"], np.int32))

    def _turn_length(self) -> int:
        """Evaluations of the current turn."""
        if not self._turn:
            return len(self._starts)
        finer = 0
        if not self._relinks(self._turn):
            finer = max(min(self._turn - 1, len(self._levels)) - (_REPEATED in self._levels), 0)
        return self._config.turn << (finer + self._doublings)

    def _relinks(self, turn: int) -> bool:
        """True if a turn is of groups again, after units."""
        return bool(self._levels) and turn > len(self._levels) + 1 and (turn - len(self._levels)) % 2 == 0

    def _take_starts(self) -> None:
        """A start for each chain, the fastest first, and again from the first where there are fewer."""
        fits = np.flatnonzero(self._start_ns < NEVER)
        if not len(fits):
            fits = np.arange(1)
        fits = fits[self._start_ns[fits] <= self._start_ns[fits].min() / _MUCH_FASTER]
        if self._given > 1 and (fits < self._given).any():
            fits = fits[fits < self._given]
        elif self._levels:
            ends = self._starts[fits][:, self._edges]  # [K, E, 2]
            cut = (ends[:, :, 0] != ends[:, :, 1]).sum(axis=1)
            fits = fits[cut == cut.min()]
        fits = fits[np.argsort(self._start_ns[fits], kind="stable")]
        taken = np.resize(fits, self._config.chains or len(os.sched_getaffinity(0)))
        self._best, self._best_ns = self._starts[taken], self._start_ns[taken]

    def _advanced(self, search: ChainSearch, rounds: np.ndarray) -> Chains:
        """The chains after some more rounds each; an experiment overrides this to keep the moves."""
        return search.advance(self._chains, rounds)[0]

    def _begin(self, turn: int) -> None:
        """Begins a turn: every chain continues from its fastest plan, on the groups of the turn."""
        levels = len(self._levels)
        again = turn > levels + 1
        if turn > levels and not self._relinks(turn):
            # Chains that have fallen back further than allowed move to the fastest plan, of a chain or a start.
            rows, best_ns = self._with_fastest_start()
            fastest = int(np.argmin(best_ns))
            slow = self._best_ns > best_ns[fastest] * (1 + self._config.setback)
            self._best = np.where(slow[:, np.newaxis], rows[fastest], self._best)
            self._best_ns = np.where(slow, best_ns[fastest], self._best_ns)
            if again and int(min(self._best_ns.min(), self._start_ns.min())) < self._before_ns * (1 - _GAIN):
                self._doublings, self._stalls = self._doublings + 1, 0  # units gained: longer turns
            elif again:
                # All chains but the fastest begin at starts; they change places, so that no plan is lost.
                self._stalls += 1
                fits = np.flatnonzero(self._start_ns < NEVER)
                slower = np.argsort(self._best_ns, kind="stable")[min(1, len(self._best) - 1) :]
                for chain in slower.tolist() if len(fits) else ():
                    row = int(fits[-1 - self._restarts % len(fits)])
                    plan, start = self._best[chain].copy(), self._starts[row].copy()
                    self._starts[row], self._best[chain] = plan, start
                    self._start_ns[row], self._best_ns[chain] = self._best_ns[chain], self._start_ns[row]
                    self._restarts += 1
            self._before_ns = int(min(self._best_ns.min(), self._start_ns.min()))
        self._turn, self._made = turn, 0
        if turn <= levels or self._relinks(turn):
            parts = self._levels[min(turn, levels) - 1]
            is_repeated = parts == _REPEATED
            keys = repeated_groups(self._problem) if is_repeated else slack_groups(self._problem, parts)
            self._level = self._level_of(cut_by_plans(keys, self._best))
        else:
            self._level = self._level_of(np.arange(self._problem.num_units, dtype=np.int32))
        # Chains may fall back by a share of the step time, twice as much each time that nothing was gained.
        setback = min(self._config.setback * 2.0 ** min(self._stalls, _MOST_DOUBLED), 1.0) if again else 0.0
        number, unit = len(self._best), self._level.unit
        rows = np.zeros((number, int(unit.max(initial=-1)) + 1), np.int32)
        rows[:, unit] = self._best
        states = [local_search.random_state(self._seed, turn * number + chain) for chain in range(number)]
        bits = np.array(states, np.uint64).view(np.int64)
        counts = np.stack([self._best_ns, self._best_ns, np.ones(number, np.int64), bits], axis=1)
        late_ns = [ns if ns == NEVER else ns + int(ns * setback) for ns in self._best_ns.tolist()]
        late = min(self._config.late << self._doublings, LONGEST_LATE)
        ring = np.repeat(np.array(late_ns, np.int64)[:, np.newaxis], late, axis=1)
        self._chains = Chains(rows, rows.copy(), ring, counts)

    def _level_of(self, group: np.ndarray) -> _Level:
        """Groups as units; the level of single units is made once, because that one comes again."""
        whole = len(np.unique(group)) == self._problem.num_units
        if whole and self._units is not None:
            return self._units
        coarse, unit = self._problem, np.arange(self._problem.num_units, dtype=np.int32)
        if not whole:
            groups = Groups.of(self._problem, group)
            coarse, unit = groups.coarse_problem(), groups.group_of_unit
        orders = [
            dataclasses.replace(order, unit_of_op=coarse.unit_of_op, resident_bytes=coarse.resident_bytes)
            for order in self._simulator.orders
        ]
        tables = dataclasses.replace(
            local_search.move_tables(coarse, local_search.LocalSearchConfig()),
            path_chance=local_search.chance(self._config.path),
            draws=self._config.draws,
            uniform_chance=local_search.chance(self._config.uniform),
            scorer_weights=self._weights,
        )
        level = _Level(ChainSearch(orders, tables, coarse.cluster.capacity_bytes()), unit)
        if whole:
            self._units = level
        return level


@method(
    "memetic",
    Kind.IMPROVING,
    {Role.MEMBER, Role.LEAD},
    config=MemeticConfig,
    build_inside=SimulatedMemetic,
    uses_start=True,
    versions={"memetic": STATE_VERSION},
)
def memetic(
    problem: Problem, config: MemeticConfig, start: np.ndarray, seed: int
) -> local_search.LocalSearch:
    """Late acceptance over groups, then finer ones, then units; chains cross over (Moscato 1989)."""
    # An evaluator that is no simulator makes too few evaluations for levels and several chains.
    chain = local_search.LocalSearchConfig(chains=1, late=config.late)
    return local_search.LocalSearch(problem, chain, start, seed)
