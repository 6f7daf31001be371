"""The best plans that cost nothing to find: where a search begins, and what rewards are relative to."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_placer.evaluation.any_order import simulator_beside
from tf_placer.evaluation.evaluator import Evaluator
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.memory_repair import repairs
from tf_placer.method_spec import MethodSpec, Role
from tf_placer.planners.single_device import single_device_placements
from tf_placer.problem.problem import Problem


class Starts:
    """Everything on one device, and the plans that constructive methods make at once: whatever of them fits.

    Where the host alone holds a model, a search that begins there and is paid relative to that learns little: the
    devices filled in order are often several times as fast. The constructed plans are made when first asked for, and
    are judged by the simulator: what is measured on the runtime is what was before, every single device.

        starts = Starts(problem, evaluator, methods.having(Role.BESIDE))
        starts.plans[0], starts.reference_s, starts.single_device_s
    """

    def __init__(self, problem: Problem, evaluator: Evaluator, planners: Sequence[MethodSpec]) -> None:
        """Times the single devices.

        Args:
          problem: what is placed.
          evaluator: of the search.
          planners: constructive methods, whose plans are looked at beside the single devices; of the one that makes
            those (``Role.REFERENCE``) only the name is used.
        """
        self._problem = problem
        self._evaluator = evaluator
        self._planners = [spec for spec in planners if Role.REFERENCE not in spec.roles]
        self._single_by = next((spec.name for spec in planners if Role.REFERENCE in spec.roles), "")
        self._singles = single_device_placements(problem)
        measured = evaluator.evaluate(self._singles)
        self._single_s = np.where(measured.status == Status.OK, measured.runtime_s, np.inf)

    @property
    def single_device_s(self) -> float | None:
        """Step time of the best single device, by the evaluator; None when the step runs on none."""
        return float(self._single_s.min()) if np.isfinite(self._single_s).any() else None

    @property
    def plans(self) -> np.ndarray:
        """[K, U] int32, K >= 1: what runs and fits, the fastest first; a single device wins a tie.

        Where nothing does, the one plan that exceeds the devices' memory least.
        """
        return self._found[0]

    @property
    def made_by(self) -> tuple[str, ...]:
        """Names of the methods that made ``plans``."""
        return self._found[2]

    @property
    def reference_s(self) -> float:
        """Step time of the first plan, above 0: what rewards are relative to.

        On the runtime that of the best single device, times what the simulator says of the first plan beside it; where
        no single device runs, the simulator's, which rewards can be relative to as well.
        """
        return max(self._found[1], 1e-9)

    @functools.cached_property
    def _found(self) -> tuple[np.ndarray, float, tuple[str, ...]]:
        """``plans``, ``reference_s`` and ``made_by``."""
        simulator = simulator_beside(self._evaluator, self._problem)
        built = [spec.build(self._problem, spec.config(), 0) for spec in self._planners]
        every = [self._single_by] * len(self._singles)
        every += [spec.name for spec, rows in zip(self._planners, built, strict=True) for _ in rows]
        rows, first = _distinct(np.concatenate([self._singles, *built]))
        made_by = [every[i] for i in first]
        simulated = simulator.evaluate(rows)
        simulated_s = np.where(simulated.status == Status.OK, simulated.runtime_s, np.inf)
        times_s = simulated_s.copy()
        single_s = self._single_s[np.sort(np.unique(self._singles, axis=0, return_index=True)[1])]
        singles = len(single_s)
        times_s[:singles] = single_s
        best = int(np.argmin(single_s))
        if np.isfinite(single_s[best]):
            # The simulator's seconds and the evaluator's differ: the best single device, which both know, joins them.
            in_simulator_s = float(simulated_s[best])
            if np.isinf(in_simulator_s):
                in_simulator_s = float(simulator.times(tf.constant(rows[best : best + 1])).runtime_s[0])
            times_s[singles:] *= single_s[best] / max(in_simulator_s, 1e-9)
        runs = np.flatnonzero(np.isfinite(times_s))
        if len(runs):
            order = runs[np.argsort(times_s[runs], kind="stable")]
            return rows[order], float(times_s[order[0]]), tuple(made_by[i] for i in order)
        return self._nearest_to_fitting(simulator, rows, made_by)

    def _nearest_to_fitting(
        self, simulator: SimulatedEvaluator, rows: np.ndarray, made_by: list[str]
    ) -> tuple[np.ndarray, float, tuple[str, ...]]:
        """The row, or single device less what does not fit there, that exceeds memory least; its time without limit."""
        certain, _ = repairs(self._problem)
        rows = np.concatenate([rows, [certain(row) for row in self._singles]])
        times = simulator.times(tf.constant(rows))
        over = np.maximum(times.peak_bytes.numpy() - self._problem.cluster.capacity_bytes(), 0).sum(axis=1)
        least = int(np.lexsort((times.runtime_s.numpy(), over))[0])
        by = [*made_by, *[self._single_by] * len(self._singles)]
        return rows[least : least + 1], float(times.runtime_s[least]), (by[least],)


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[K, U] the rows, each where it is first, and [K] where that is."""
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    return rows[first], first
