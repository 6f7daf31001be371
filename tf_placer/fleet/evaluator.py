"""Placements timed on many machines at once, relative to a reference plan on each, with journals for searches."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import milliseconds
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.runtime import RuntimeEvaluator, check_can_be_timed
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.fleet.fleet import Fleet
from tf_placer.fleet.machine import Program, Reply, Trial, trial_id
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig


class FleetEvaluator:
    """Times placements on the machines of a fleet, with the interface of ``RuntimeEvaluator``.

        with open_fleet(address, problem.cluster) as fleet:
            evaluator = FleetEvaluator(item, problem, fleet)
            measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]

    Machines differ, and so does one machine over the hours. So each times a reference plan now and then, and the time
    of a plan is its ratio to the reference on the same machine, times ``level_s``: the seconds of the reference on the
    first machine that measured it, or those given to ``relative_to``.
    """

    def __init__(
        self,
        item: Item,
        problem: Problem,
        fleet: Fleet,
        config: RuntimeConfig = RuntimeConfig(),
        reference: Decisions | None = None,
        otherwise: Decisions | None = None,
    ) -> None:
        """Packs the program; nothing is sent.

        Args:
          item: the program.
          problem: built from it, on a cluster of the fleet's class.
          fleet: of machines; the caller closes it.
          config: of the timing of a step.
          reference: reference plan, one row; None for the first single device that holds the program.
          otherwise: reference plan where no single device holds the program.

        Raises:
          InputError: as ``RuntimeEvaluator``; the program has captured something of this process; there is no
            reference plan.
        """
        check_can_be_timed(item, problem)
        if reference is None:
            rows = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
            runs = np.flatnonzero(SimulatedEvaluator(problem).evaluate(rows).status == Status.OK)
            reference = Decisions(rows[runs[:1]]) if len(runs) else otherwise
        if reference is None:
            raise InputError(
                f"no single device holds {problem.name!r}, so times on a fleet have nothing to be relative to; give "
                "reference=, a plan that fits"
            )
        self.problem, self.fleet, self.reference = problem, fleet, reference.row(0)
        self._config = config
        self._program = Program.packed(item, problem, self.reference, config)
        self.level_s: float | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on the graph, the class of machines, the reference plan and the timing of a step."""
        return {
            "evaluator": "fleet",
            "graph": self.problem.fingerprint,
            "machines": self.fleet.machines,
            "reference": self.reference.digest(0, self.problem),
            "repetitions": self.fleet.config.repetitions,
            "config": dataclasses.asdict(self._config),
        }

    @property
    def baselines_s(self) -> list[float]:
        """Latest seconds of the reference plan on each actor that has measured."""
        return self.fleet.baselines_s(self._program.digest)

    def relative_to(self, level_s: float) -> None:
        """Sets the seconds of the reference plan, the unit of all times."""
        self.level_s = arguments.number("level_s", level_s, above=0, finite=True)

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Times one step of each placement, on all machines at once.

        Args:
          device_of_unit: [B, U] integer device positions, or the decisions of B plans.

        Raises:
          InputError: wrong shape.
          FleetLost: no machine can measure any more.
        """
        plans = decisions_of(device_of_unit, self.problem)
        measured = dict(self.evaluate_each(plans))
        return Measurement.joined([measured[i] for i in range(len(plans))], self.problem.num_devices)

    def evaluate_each(self, plans: Decisions) -> Iterator[tuple[int, Measurement]]:
        """As ``evaluate``, but yields position and measurement of each plan as soon as possible."""
        rows: dict[str, list[int]] = collections.defaultdict(list)  # by digest: equal plans are measured once
        for i in range(len(plans)):
            rows[plans.digest(i, self.problem)].append(i)
        repetitions = self.fleet.config.repetitions
        trials, digest_of_trial = [], {}
        for digest, positions in rows.items():
            for repetition in range(repetitions):
                name = trial_id(self._program.digest, digest, self.fleet.machines, repetition)
                digest_of_trial[name] = digest
                trials.append(Trial(name, plans.row(positions[0]), self._program.digest))
        replies: dict[str, list[Reply]] = collections.defaultdict(list)
        for reply in self.fleet.measure(trials, self._program):
            digest = digest_of_trial[reply.trial]
            replies[digest].append(reply)
            if len(replies[digest]) == repetitions:
                measurement = self._measurement(replies[digest])
                for i in rows[digest]:
                    yield i, measurement

    def _measurement(self, replies: list[Reply]) -> Measurement:
        """Median of the repetitions of one plan, or the first repetition that failed."""
        failed = next((reply for reply in replies if reply.runtime_s is None), None)
        reply = failed or replies[0]
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
            None if reply.peak_bytes is None else np.array([reply.peak_bytes], np.int64),
            np.array([reply.status], np.int32),
            (reply.message,),
            np.array([spread_s]),
        )


class FleetTiming:
    """Evaluators for each form of one program on a fleet, each behind a journal, for a search on live devices.

        with FleetTiming(fleet, item, folder) as timing:
            evaluator = timing.whole(problem, runtime, otherwise)

    The reference plan is timed on this machine first, so that times are in its seconds. A later search of the same
    program starts with the journals in the folder.
    """

    def __init__(self, fleet: Fleet, item: Item, folder: pathlib.Path) -> None:
        """Begins.

        Args:
          fleet: of machines; the caller closes it.
          item: the program, its batch whole.
          folder: of the journals; must exist.
        """
        self._fleet, self._item, self._folder = fleet, item, folder
        self._evaluators: list[tuple[FleetEvaluator, JournaledEvaluator]] = []
        self._journals = contextlib.ExitStack()

    def __enter__(self) -> FleetTiming:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._journals.close()

    @property
    def hosts(self) -> int:
        """Number of machines that measure at the same time."""
        return self._fleet.hosts

    def whole(self, problem: Problem, runtime: RuntimeEvaluator, otherwise: Decisions) -> JournaledEvaluator:
        """Evaluator of the program with its batch whole; arguments as in ``of_form``."""
        return self.of_form(self._item, problem, runtime, otherwise)

    def of_form(
        self, item: Item, problem: Problem, runtime: RuntimeEvaluator, otherwise: Decisions
    ) -> JournaledEvaluator:
        """Evaluator of a form of the program.

        Args:
          item: the program in that form.
          problem: built from it.
          runtime: evaluator of this form on this machine.
          otherwise: reference plan where no single device holds the program, one row.

        Raises:
          InputError: the program cannot be sent, or the journal is damaged.
          WorkerError: workers cannot be started here.
        """
        evaluator = FleetEvaluator(item, problem, self._fleet, otherwise=otherwise)
        name = hashlib.sha256(json.dumps(evaluator.identity, sort_keys=True).encode()).hexdigest()[:12]
        journaled = JournaledEvaluator(evaluator, self._folder / f"fleet-{name}.jsonl")
        self._journals.enter_context(journaled)
        local = runtime.evaluate(evaluator.reference.plain)
        if local.status[0] == Status.OK:
            evaluator.relative_to(float(local.runtime_s[0]))
        self._evaluators.append((evaluator, journaled))
        return journaled

    def sentence(self) -> str:
        """Numbers of plans and machines, and the range of the reference plan's times on them."""
        fleet = self._fleet
        measured = sum(journaled.measured for _, journaled in self._evaluators)
        reused = sum(journaled.reused for _, journaled in self._evaluators)
        machines = "1 machine" if fleet.hosts == 1 else f"{fleet.hosts} machines"
        text = f"{measured} plans were measured by {fleet.actors} actors of a fleet on {machines}"
        baselines_s = self._evaluators[0][0].baselines_s if self._evaluators else []
        if baselines_s:
            text += (
                f", relative to a reference plan that took {milliseconds(min(baselines_s))} to "
                f"{milliseconds(max(baselines_s))} there"
            )
        if fleet.counts.lost:
            text += f"; {fleet.counts.lost} calls were lost and made again"
        if reused:
            text += f"; {reused} answers are those of an earlier run, in the journal"
        return f"{text}."
