"""Evaluator of a fleet: placements timed on many machines at once, relative to a reference plan on each."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.measurement import UNKNOWN_BYTES, Measurement, Status
from tf_placer.evaluation.runtime import check_can_be_timed
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.fleet.fleet import Fleet
from tf_placer.fleet.trial import Program, Reply, Trial, trial_id
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig


class FleetEvaluator:
    """Times placements on the machines of a fleet; the sibling of ``RuntimeEvaluator``, and what it calls there.

        with open_fleet(address, problem.cluster) as fleet:
            evaluator = FleetEvaluator(item, problem, fleet)
            measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]

    Machines differ, and so do their hours. So each measures a reference plan now and then, and a time is the plan's
    beside the reference on the same machine, times ``level_s``: the reference's seconds on the first machine that has
    measured it, or what ``relative_to`` says.
    """

    def __init__(
        self,
        item: Item,
        problem: Problem,
        fleet: Fleet,
        config: RuntimeConfig = RuntimeConfig(),
        reference: Decisions | None = None,
    ) -> None:
        """Packs the program; nothing is sent.

        Args:
          item: the program.
          problem: built from it, on a cluster of the fleet's class.
          fleet: measures, and stays the caller's to close.
          config: how a step is timed.
          reference: the plan that times are relative to, one row; None for the first single device that holds it.

        Raises:
          InputError: as ``RuntimeEvaluator``; the program has captured what is in this process; no single device holds
            it and no reference is given.
        """
        check_can_be_timed(item, problem)
        self._item, self._problem, self._fleet, self._config = item, problem, fleet, config
        self._reference = _first_single(problem) if reference is None else reference.row(0)
        self._program = Program.packed(item, problem, self._reference, config)
        self.level_s: float | None = None

    @property
    def problem(self) -> Problem:
        """The problem that is placed."""
        return self._problem

    @property
    def fleet(self) -> Fleet:
        """The machines."""
        return self._fleet

    @property
    def reference(self) -> Decisions:
        """The plan that times are relative to."""
        return self._reference

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on the graph, the class of the machines, the reference and how a step is timed."""
        return {
            "evaluator": "fleet",
            "graph": self._problem.fingerprint,
            "machines": self._fleet.machines,
            "reference": self._reference.digest(0, self._problem),
            "repetitions": self._fleet.config.repetitions,
            "config": dataclasses.asdict(self._config),
        }

    @property
    def baselines_s(self) -> list[float]:
        """Seconds of the reference plan on each actor that has measured, as it was last."""
        return self._fleet.baselines_s(self._program.digest)

    def relative_to(self, level_s: float) -> None:
        """Says how many seconds the reference plan takes: all times are relative to that."""
        self.level_s = arguments.number("level_s", level_s, above=0, finite=True)

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Times one step of each placement, on all machines at once.

        Args:
          device_of_unit: [B, U] integer device positions, or all that B plans decide.

        Raises:
          InputError: wrong shape.
          FleetLost: no machine can measure any more.
        """
        plans = decisions_of(device_of_unit, self._problem)
        found: dict[int, Measurement] = dict(self.evaluate_each(plans))
        return _joined([found[i] for i in range(len(plans))], self._problem.num_devices)

    def evaluate_each(self, plans: Decisions) -> Iterator[tuple[int, Measurement]]:
        """As ``evaluate``, and yields the position and the measurement of each plan as soon as it is there."""
        trials, of_trial = self._trials(plans)
        replies: dict[str, list[Reply]] = collections.defaultdict(list)
        rows: dict[str, list[int]] = collections.defaultdict(list)
        for i in range(len(plans)):
            rows[plans.digest(i, self._problem)].append(i)
        for reply in self._fleet.measure(trials, self._program):
            digest = of_trial[reply.trial]
            replies[digest].append(reply)
            if len(replies[digest]) == self._fleet.config.repetitions:
                measured = self._measurement(replies[digest])
                for i in rows[digest]:
                    yield i, measured

    def _trials(self, plans: Decisions) -> tuple[list[Trial], dict[str, str]]:
        """Trials of the plans that differ, and trial -> digest of its plan."""
        distinct = {plans.digest(i, self._problem): i for i in reversed(range(len(plans)))}
        trials, of_trial = [], {}
        for digest, i in sorted(distinct.items(), key=lambda entry: entry[1]):
            for repetition in range(self._fleet.config.repetitions):
                name = trial_id(self._program.digest, digest, self._fleet.machines, repetition)
                of_trial[name] = digest
                trials.append(Trial(name, plans.row(i), self._program.digest))
        return trials, of_trial

    def _measurement(self, replies: list[Reply]) -> Measurement:
        """One plan, by all of its repetitions: their median, or the first that failed."""
        failed = next((one for one in replies if one.runtime_s is None), None)
        one = failed or replies[0]
        nan = float("nan")
        runtime_s = spread_s = nan
        if failed is None:
            if self.level_s is None:
                self.level_s = replies[0].reference_s
            ratios = [(r.runtime_s or nan) / r.reference_s for r in replies]
            runtime_s = self.level_s * float(np.median(ratios))
            spreads = [(r.spread_s or 0.0) / r.reference_s for r in replies]
            spread_s = self.level_s * float(np.median(spreads))
        return Measurement(
            np.array([runtime_s]),
            None if one.peak_bytes is None else np.array([one.peak_bytes], np.int64),
            np.array([one.status], np.int32),
            (one.message,),
            np.array([spread_s]),
        )


def _first_single(problem: Problem) -> Decisions:
    rows = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
    runs = np.flatnonzero(SimulatedEvaluator(problem).evaluate(rows).status == Status.OK)
    if not len(runs):
        raise InputError(
            f"no single device holds {problem.name!r}, so times on a fleet have nothing to be relative to; give "
            "reference=, a plan that fits"
        )
    return Decisions(rows[runs[:1]])


def _joined(found: list[Measurement], devices: int) -> Measurement:
    """Measurements of one plan each as one of them all."""
    unknown = np.full((1, devices), UNKNOWN_BYTES, np.int64)
    peaks = [unknown if one.peak_bytes is None else one.peak_bytes for one in found]
    empty = np.zeros(0)
    return Measurement(
        np.concatenate([empty, *(one.runtime_s for one in found)]),
        np.concatenate(peaks) if any(one.peak_bytes is not None for one in found) else None,
        np.concatenate([np.zeros(0, np.int32), *(one.status for one in found)]).astype(np.int32),
        tuple(one.messages[0] for one in found),
        np.concatenate([empty, *(np.asarray(one.spread_s) for one in found)]),
    )
