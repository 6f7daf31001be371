"""Constraint programming: exact on small programs, windows on large ones."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.memory_repair import repairs
from tf_placer.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.planners.solver_process import SolverProcess
from tf_placer.planners.window import stretch, whole
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class CpSatConfig(Settings):
    """Settings.

    Attributes:
      exact_ops: programs of at most so many ops are solved as a whole.
      window_ops: ops of a window of a larger one.
      effort: deterministic seconds of the solver for each solution; twice as many whenever they were too few.

    Raises:
      InputError: a value out of its range.
    """

    exact_ops: int = setting(100, least=0, most=2**20)
    window_ops: int = setting(40, least=1, most=2**20)
    effort: float = setting(0.5, least=0.001, most=3600)


class CpSat:
    """CP-SAT looks for plans in a relaxed model (``window_model``), and what times them has the last word.

    In that model orders are free; the simulator has one order, so that a plan takes there as long as in the model or
    longer. On a small program the solver looks for plans that take less than the best known one and have not been
    tried: a logic-based Benders decomposition (Hooker & Ottosson 2003). Where there are none left, the best one is the
    optimum of the simulator, and it is proposed from then on. On a large program a stretch of the best plan's step is
    placed anew, all else fixed, and kept if it is no slower (large-neighborhood search, Shaw 1998); nothing is proven.

    What is proven is about the simulator's times, and not about measured ones.

        planner = CpSat(problem, CpSatConfig(), start, seed)
        rows = planner.propose()
        planner.learn(rows, runtime_s)

    Attributes:
      proven_bound_ns: no placement that fits takes less in the simulator.
      is_proven: whether the best plan that was learned is the optimum of the simulator.
    """

    def __init__(self, problem: Problem, config: CpSatConfig, start: np.ndarray, seed: int) -> None:
        """Starts from a placement ``start`` [U]."""
        self._problem, self._config = problem, config
        self._generator = np.random.default_rng(seed)
        self._whole = problem.num_ops <= config.exact_ops
        self._certain, _ = repairs(problem)
        self._simulator = SimulatedEvaluator(problem)
        self._best, self._best_s = np.array(start, np.int32), math.inf
        self._tried = np.zeros((0, problem.num_units), np.int32)
        self._effort = config.effort
        self._solver = SolverProcess()
        self.proven_bound_ns = math.ceil(lower_bounds(problem).best_s * 1e9 - 1e-3)

    @property
    def is_proven(self) -> bool:
        return self._best_s * 1e9 <= self.proven_bound_ns + 1e-3

    def proven_s(self) -> float:
        """``proven_bound_ns`` in seconds."""
        return self.proven_bound_ns / 1e9

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements: the solver's, or the best one again where it has none."""
        if self.is_proven:
            return self._best[np.newaxis]
        return self._propose_whole() if self._whole else self._propose_stretch()

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Remembers what was tried, and goes to the fastest unless it is slower."""
        fastest = int(np.argmin(runtime_s))
        if runtime_s[fastest] <= self._best_s:
            self._best, self._best_s = np.array(device_of_unit[fastest], np.int32), float(runtime_s[fastest])
        if (self._problem.allowed.sum(axis=1) == 1).all() and math.isfinite(self._best_s):
            self.proven_bound_ns = math.ceil(self._best_s * 1e9 - 1e-3)  # there is no other placement
        if self._whole:
            self._tried = np.unique(np.concatenate([self._tried, device_of_unit]), axis=0)

    def _seed(self) -> int:
        return int(self._generator.integers(2**31 - 1))

    def _propose_whole(self) -> np.ndarray:
        under = None if math.isinf(self._best_s) else math.ceil(self._best_s * 1e9 - 1e-3)
        devices, bound_ns = self._solver.solve(
            whole(self._problem), under, self._tried, self._best, self._effort, self._seed()
        )
        if under is not None:
            # What was tried takes at least ``under``, all else at least the solver's bound.
            self.proven_bound_ns = max(self.proven_bound_ns, min(bound_ns, under))
        if not len(devices):
            self._effort *= 2
            return self._best[np.newaxis]
        return devices

    def _propose_stretch(self) -> np.ndarray:
        problem, size = self._problem, self._config.window_ops
        schedule = self._simulator.schedule(self._best[np.newaxis])
        start_ns, end_ns = (np.asarray(times)[0] for times in schedule)
        first = int(self._generator.integers(max(problem.num_ops - size, 0) + 1))
        window = stretch(problem, self._best, start_ns, end_ns, first, size)
        nothing = np.zeros((0, len(window.units)), np.int64)
        here = self._best[window.units]
        devices, _ = self._solver.solve(window, None, nothing, here, self._effort, self._seed(), early=True)
        rows = np.repeat(self._best[np.newaxis], max(len(devices), 1), axis=0)
        if len(devices):
            rows[:, window.units] = devices
        return np.stack([self._certain(row) for row in rows])

    def state(self) -> dict[str, Any]:
        """The best plan, what was tried and proven, and where the generator is."""
        return {
            "best": self._best,
            "best_s": self._best_s,
            "tried": self._tried,
            "effort": self._effort,
            "proven_bound_ns": self.proven_bound_ns,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave."""
        self._best, self._best_s = np.array(state["best"], np.int32), float(state["best_s"])
        self._tried, self._effort = np.array(state["tried"], np.int32), float(state["effort"])
        self.proven_bound_ns = int(state["proven_bound_ns"])
        self._generator.bit_generator.state = state["generator"]


SPEC = MethodSpec(
    name="cp_sat",
    kind=Kind.IMPROVING,
    summary="Constraint programming (CP-SAT): proves small programs, places stretches of large ones anew.",
    build=CpSat,
    config=CpSatConfig,
    ignores=("the simulator's order", "what devices do for messages", "peaks of memory"),
    uses_start=True,
)
