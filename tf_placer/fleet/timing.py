"""Timing of one program's plans on a fleet, each form of it with a journal, for a search on live devices."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib

import numpy as np

from tf_placer.base.quantities import milliseconds
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.fleet.evaluator import FleetEvaluator
from tf_placer.fleet.fleet import Fleet
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem


class FleetTiming:
    """Makes what times plans of each form of a program: a ``FleetEvaluator`` behind a journal.

        with FleetTiming(fleet, item, folder) as timing:
            evaluator = timing.whole(problem, runtime, otherwise)

    The reference plan is timed here first, so that a fleet's times are in this machine's seconds. Journals stay in the
    folder: the next search of the same program there begins with what they hold.
    """

    def __init__(self, fleet: Fleet, item: Item, folder: pathlib.Path) -> None:
        """Begins.

        Args:
          fleet: measures, and stays the caller's to close.
          item: the program, its batch whole.
          folder: of the journals; it is there.
        """
        self._fleet, self._item, self._folder = fleet, item, folder
        self._made: list[tuple[FleetEvaluator, JournaledEvaluator]] = []
        self._journals = contextlib.ExitStack()

    def __enter__(self) -> FleetTiming:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._journals.close()

    @property
    def hosts(self) -> int:
        """Machines that measure at the same time."""
        return self._fleet.hosts

    def whole(self, problem: Problem, runtime: RuntimeEvaluator, otherwise: Decisions) -> JournaledEvaluator:
        """What times plans of the program as it is; arguments as in ``of_form``."""
        return self.of_form(self._item, problem, runtime, otherwise)

    def of_form(
        self, item: Item, problem: Problem, runtime: RuntimeEvaluator, otherwise: Decisions
    ) -> JournaledEvaluator:
        """What times plans of a form of the program.

        Args:
          item: the program in that form.
          problem: built from it.
          runtime: times its plans on this machine.
          otherwise: the plan that times are relative to where no single device holds the program, one row.

        Raises:
          InputError: the program cannot be sent, or the journal is damaged.
          WorkerError: workers cannot be started here.
        """
        rows = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
        fits = (SimulatedEvaluator(problem).evaluate(rows).status == Status.OK).any()
        evaluator = FleetEvaluator(item, problem, self._fleet, reference=None if fits else otherwise)
        name = hashlib.sha256(json.dumps(evaluator.identity, sort_keys=True).encode()).hexdigest()[:12]
        journaled = JournaledEvaluator(evaluator, self._folder / f"fleet-{name}.jsonl")
        self._journals.enter_context(journaled)
        here = runtime.evaluate(evaluator.reference.plain)
        if here.status[0] == Status.OK:
            evaluator.relative_to(float(here.runtime_s[0]))
        self._made.append((evaluator, journaled))
        return journaled

    def sentence(self) -> str:
        """On how many machines how many plans were measured, and how far these machines differ."""
        fleet, baselines_s = self._fleet, [s for made, _ in self._made[:1] for s in made.baselines_s]
        measured = sum(journaled.measured for _, journaled in self._made)
        reused = sum(journaled.reused for _, journaled in self._made)
        counts = fleet.counts
        found = (
            f"{measured} plans were measured by {fleet.actors} actors of a fleet on {_machines(fleet.hosts)}"
        )
        if baselines_s:
            least, most = (milliseconds(seconds) for seconds in (min(baselines_s), max(baselines_s)))
            found += f", relative to a reference plan that took {least} to {most} there"
        if counts.lost:
            found += f"; {counts.lost} calls were lost and made again"
        if reused:
            found += f"; {reused} answers are those of an earlier run, in the journal"
        return f"{found}."


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
