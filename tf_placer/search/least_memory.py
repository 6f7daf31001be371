"""The plan that takes the least memory within a slow-down of the fastest: searches under an ever lower cap."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np

from tf_placer.base.method_spec import MethodSpec, Role
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import search_simulator
from tf_placer.planners.plain import topological_fill
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.memory_bounds import accelerators, fullest_share, least_share
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import order_of_use
from tf_placer.search import methods
from tf_placer.search.ctrl_c import patient
from tf_placer.search.known import Budget, Objective
from tf_placer.search.progress import EnteredAlready, Progress
from tf_placer.search.recorder import HistoryEntry, LeastMemory, SearchResult
from tf_placer.search.settings import configured
from tf_placer.search.shortest import shortest

_FIRST_OF = 2  # the fastest plan is looked for in half of the budget; what sets a search up may take longer
_FILLS = (
    1.0,
    0.75,
    0.5,
    0.25,
)  # caps under which devices are filled in order, as shares of the fastest plan's
_BATCH, _PATIENCE = 16, 8  # moves tried together, and batches without a gain before time is sought again
_LEAST_STEPS = 16  # however long the fastest plan took: without a step nothing is lowered
_BURST = 128  # placements tried for time, under the cap that the best plan sets


def least_memory(
    problem: Problem,
    spec: MethodSpec,
    config: Any,
    budget: Budget,
    seed: int,
    progress: Progress,
    objective: Objective,
) -> SearchResult:
    """Finds the fastest plan by a method, then lowers the cap that the best plan sets on all accelerators.

    Runs of units are moved off the fullest accelerator while the plan stays within the slow-down. Where that gains no
    more, the plain search (``Role.PLAIN``) goes on from the plan for time, with the accelerators no larger than the
    plan's share of them, and what it gains there is what the next moves may cost. All of it is simulated. Ctrl-C keeps
    the best so far.

    Args:
      problem: what to place.
      spec, config: the method that finds the fastest plan.
      budget: of everything here together.
      seed: fixes everything random.
      progress: is shown what is tried; its times are those of the best plan.
      objective: with the slow-down.

    Returns:
      The plan, with ``least_memory`` set; where none takes less, the fastest.

    Raises:
      NothingFits: as ``search``.
      KeyboardInterrupt: Ctrl-C before anything was found.
    """
    begin_s = time.monotonic()
    with progress, patient():
        first = budget.share(_FIRST_OF)
        shown = EnteredAlready(progress)
        fastest = shortest(problem, spec, config, first, seed, shown)
        lowering = _Lowering(problem, fastest, objective.slow_down)
        interrupted = fastest.interrupted
        try:
            while not interrupted and lowering.goes_on:
                is_late = time.monotonic() - begin_s >= budget.seconds
                if budget.left(lowering.evaluations) < 1 or (is_late and lowering.steps >= _LEAST_STEPS):
                    break
                lowering.step(budget.left(lowering.evaluations))
                progress.show(lowering.entry(time.monotonic() - begin_s))
        except KeyboardInterrupt:
            interrupted = True
    return lowering.result(time.monotonic() - begin_s, interrupted)


class _Lowering:
    """The best plan so far, by its ``fullest_share`` and then its time, and what makes better ones of it."""

    def __init__(self, problem: Problem, fastest: SearchResult, slow_down: float) -> None:
        self._problem, self._fastest, self._slow_down = problem, fastest, slow_down
        self._limit_s = fastest.runtime_s * (1 + slow_down)
        self._simulator = search_simulator(problem)
        self._random = np.random.default_rng(fastest.seed)
        self._bound = least_share(problem, self._limit_s)
        self._order = order_of_use(problem)
        self._in_vain, self._failed = 0, 0
        self.evaluations, self.steps = fastest.evaluations, 0
        self._best, self._share, self._runtime_s = np.zeros(0, np.int32), math.inf, math.inf
        self._peak_bytes = np.zeros(problem.num_devices, np.int64)
        self._keep(np.array(fastest.placement.device_of_unit)[np.newaxis])
        fills = [topological_fill(_capped(problem, fill * self._share)) for fill in _FILLS]
        self._keep(np.concatenate(fills))

    @property
    def goes_on(self) -> bool:
        """True while less memory can be hoped for."""
        return self._share > self._bound

    def step(self, most: float) -> None:
        """Tries at most so many placements."""
        self.steps += 1
        if self._in_vain < _PATIENCE:
            share = self._share
            self._keep(self._moved(int(min(_BATCH, most))))
            self._in_vain = 0 if self._share < share else self._in_vain + 1
        else:
            self._in_vain = 0
            self._gain_time(int(min(_BURST, most)))

    def _moved(self, count: int) -> np.ndarray:
        """[count, U], the best with a run of units off the fullest accelerator, long or short, on another device."""
        capacity = self._problem.cluster.capacity_bytes()
        counted = accelerators(self._problem.cluster)
        shares = self._peak_bytes / capacity
        fullest = int(np.where(counted, shares, -1.0).argmax())
        units = self._order[self._best[self._order] == fullest]
        # The roomier, the more likely.
        room = np.where(np.arange(len(shares)) == fullest, 0.0, np.maximum(1 - shares / self._share, 0.05))
        rows = np.repeat(self._best[np.newaxis], count, axis=0)
        if not len(units) or not room.any():
            return rows
        targets = self._random.choice(len(room), size=count, p=room / room.sum())
        lengths = np.exp(self._random.uniform(0, math.log(1 + len(units) / 2), count)).astype(int)
        for row, target, length in zip(rows, targets, lengths, strict=True):
            first = int(self._random.integers(len(units) - length + 1))
            run = units[first : first + length]
            row[run[self._problem.allowed[run, target]]] = target
        return rows

    def _gain_time(self, count: int) -> None:
        """Searches for time from the best plan, with no accelerator larger than that plan's share of it."""
        capped = _capped(self._problem, self._share)
        plain = methods.the(Role.PLAIN)
        assert plain.build_inside is not None  # it searches inside the simulator
        self._failed += 1
        seed = self._fastest.seed + self._failed
        planner = plain.build_inside(capped, configured(plain), self._best, seed, search_simulator(capped))
        burst = planner.advance(count)
        self.evaluations += burst.evaluations
        self._keep(np.asarray(burst.device_of_unit), counts=False)

    def _keep(self, rows: np.ndarray, counts: bool = True) -> None:
        """Keeps the best plan of [B, U], if it is in time and better than the best so far."""
        if not len(rows):
            return
        measured = self._simulator.evaluate(rows)
        assert measured.peak_bytes is not None  # simulated
        self.evaluations += len(rows) if counts else 0
        in_time = (measured.status == Status.OK) & ~(measured.runtime_s > self._limit_s)
        shares = np.where(in_time, fullest_share(self._problem.cluster, measured.peak_bytes), np.inf)
        row = int(np.lexsort((measured.runtime_s, shares))[0])
        if in_time[row] and (shares[row], measured.runtime_s[row]) < (self._share, self._runtime_s):
            self._best, self._share = np.array(rows[row]), float(shares[row])
            self._runtime_s, self._peak_bytes = float(measured.runtime_s[row]), measured.peak_bytes[row]

    def entry(self, elapsed_s: float) -> HistoryEntry:
        """History entry of the search as it stands."""
        return HistoryEntry(self.evaluations, elapsed_s, self._runtime_s, math.nan, 0)

    def result(self, search_s: float, interrupted: bool) -> SearchResult:
        """The best plan, beside the fastest."""
        names = [device.name for device in self._problem.cluster.devices]
        return dataclasses.replace(
            self._fastest,
            placement=Placement.from_decisions(self._problem, Decisions(self._best[np.newaxis])),
            runtime_s=self._runtime_s,
            peak_bytes={name: int(b) for name, b in zip(names, self._peak_bytes, strict=True)},
            evaluations=self.evaluations,
            search_s=search_s,
            interrupted=interrupted,
            least_memory=LeastMemory(self._slow_down, self._fastest, self._share, self._bound),
        )


def _capped(problem: Problem, share: float) -> Problem:
    """The problem with no accelerator larger than this share of what it is."""
    cluster = problem.cluster
    devices = tuple(
        dataclasses.replace(device, memory_bytes=max(math.ceil(device.memory_bytes * share), 1))
        if counted
        else device
        for device, counted in zip(cluster.devices, accelerators(cluster), strict=True)
    )
    return dataclasses.replace(problem, cluster=dataclasses.replace(cluster, devices=devices))
