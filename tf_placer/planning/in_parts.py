"""A program whose batch is in parts, placed beside the program as it is, and what that gives beside a plan."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.device import Device
from tf_placer.costs.analytic import analytic_costs
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.outcome import DATA_PARALLEL, Outcome, Timed
from tf_placer.planning.road import Road
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.runtime.graph_program import DeadlineExceeded, WorkerDied
from tf_placer.search import methods
from tf_placer.search.known import Budget
from tf_placer.search.recorder import SearchResult
from tf_placer.search.shortest import NothingFits, evaluate_given
from tf_placer.transform.split.plans import carried_over, data_parallel_plan, faster_whole
from tf_placer.transform.split.split_batch import SplitProgram, split_program


def replicas_of(devices: Sequence[Device]) -> tuple[int, ...]:
    """Positions of the devices that a batch is split over: the GPUs, or the CPUs where there is none."""
    kind = "GPU" if any(device.type == "GPU" for device in devices) else "CPU"
    return tuple(d for d, device in enumerate(devices) if device.type == kind)


@dataclasses.dataclass(frozen=True, eq=False)
class InParts:
    """A split program on a cluster.

    Attributes:
      program: the split program.
      whole: the program that was split, on the cluster.
      problem: the split one on the cluster, U units.
      data_parallel: [U] the plan in which every device computes its part of the batch.
      all_in_parts: the form in which no op is kept whole that could be split; None where this is that form.
    """

    program: SplitProgram
    whole: Problem
    problem: Problem
    data_parallel: np.ndarray
    all_in_parts: InParts | None = None

    @staticmethod
    def of(road: Road, batch_statistics: str, costs: str | None = None) -> InParts:
        """The program of a road with a part of the batch for each device (``replicas_of``).

        Args:
          road: its program and its problem are there.
          batch_statistics: as ``split_program`` takes it.
          costs: as ``build_problem`` takes them; on live devices the split program is profiled like any other.

        Raises:
          InputError: it has no batch, or one of fewer examples, or there is one device.
          WorkerError, WorkerDied, DeadlineExceeded: as ``build_problem``.
        """
        cluster = road.asked.cluster
        devices = replicas_of(cluster.devices)
        if len(devices) < 2:
            raise InputError(f"cluster {cluster.name!r} has one device to compute it all")
        program = split_program(road.program, len(devices), batch_statistics)
        announce = None if costs == "analytic" else lambda _: road.expect_profile(program.item)
        problem = build_problem(program.item, cluster, costs, road.profiles, announce)
        return InParts(program, road.problem, problem, data_parallel_plan(problem, devices))

    @staticmethod
    def estimated(item: Item, whole: Problem, batch_statistics: str) -> InParts:
        """A program with a part of the batch for each device, with costs for which nothing is profiled.

        An op takes as much more than its estimate as the op that it was made of does; on described devices that is
        the estimate.

        Args:
          item: the program.
          whole: it on the cluster, with profiled or estimated costs.
          batch_statistics: as ``split_program`` takes it.

        Raises:
          InputError: it has no batch, or one of fewer examples.
        """
        cluster = whole.cluster
        devices = replicas_of(cluster.devices)
        program = split_program(item, len(devices), batch_statistics)
        problem = analytic_problem(program.item, cluster)
        if cluster.is_live:
            estimated_ns = analytic_costs(item, cluster).compute_ns.astype(np.float64)
            factor = np.divide(
                whole.compute_ns, estimated_ns, out=np.ones_like(estimated_ns), where=estimated_ns > 0
            )
            position = item.index.id_of_name
            factor = factor[[position[program.origin_of[name]] for name in problem.op_names]]
            compute_ns = np.rint(problem.compute_ns * factor).astype(np.int64)
            problem = dataclasses.replace(problem, compute_ns=compute_ns)
        return InParts(program, whole, problem, data_parallel_plan(problem, devices))

    def where_it_pays(self, item: Item, whole_s: float) -> InParts:
        """The form in which ops stay whole that are faster so (``faster_whole``); the same one where none is.

        On live devices it is the same one: what an op takes there is profiled program by program.

        Args:
          item: the program, whole.
          whole_s: step of its best placement.
        """
        cluster = self.problem.cluster
        if cluster.is_live:
            return self
        devices = replicas_of(cluster.devices)
        kept = faster_whole(self.program, self.problem, self.whole, devices, whole_s)
        if not kept:
            return self
        try:
            program = split_program(item, self.program.parts, self._batch_statistics, kept)
        except InputError:  # what is left can be split only together with what is kept
            return self
        problem = analytic_problem(program.item, cluster)
        plan = data_parallel_plan(problem, devices)
        return InParts(program, self.whole, problem, plan, all_in_parts=self)

    @property
    def _batch_statistics(self) -> str:
        splitting = self.program.item.splitting
        assert splitting is not None  # it was split
        return splitting.batch_statistics

    def within(self, is_narrowed: np.ndarray) -> InParts:
        """The same, its ops where those that they were made of may be, by pins, requests and what stays where it is.

        Args:
          is_narrowed: [U] units of the whole from which something took devices.

        Raises:
          InputError: ops that share a device were made of some that must be apart.
        """
        whole, problem = self.whole, self.problem
        op_of = {name: op for op, name in enumerate(whole.op_names)}
        made_of = np.array([op_of[self.program.origin_of[name]] for name in problem.op_names])
        unit = whole.unit_of_op[made_of]
        narrowed, allowed = np.flatnonzero(is_narrowed[unit]), problem.allowed.copy()
        np.logical_and.at(allowed, problem.unit_of_op[narrowed], whole.allowed[unit[narrowed]])
        nowhere = np.flatnonzero(~allowed.any(axis=1))
        if len(nowhere):
            name = problem.op_names[int(np.flatnonzero(problem.unit_of_op == nowhere[0])[0])]
            raise InputError(f"op {name!r} and what shares its device were made of ops that must be apart")
        problem = dataclasses.replace(problem, allowed=allowed)
        return dataclasses.replace(
            self, problem=problem, data_parallel=problem.legalized(self.data_parallel[np.newaxis])[0]
        )

    def form_of(self, placement: Placement) -> InParts | None:
        """The form that a placement is of, this one or that with all in parts; None of the whole."""
        if placement.problem.fingerprint == self.problem.fingerprint:
            return self
        return None if self.all_in_parts is None else self.all_in_parts.form_of(placement)

    def timing(self, runtime: RuntimeEvaluator) -> RuntimeEvaluator:
        """What times its plans, on the workers of what times the whole."""
        return runtime.of_form(self.program.item, self.problem)

    def together(self, placement: Placement) -> Placement:
        """A placement of the whole with all copies of an op where the op is."""
        return Placement(self.problem, carried_over(self.program, self.problem, placement))

    def as_written(self) -> dict[str, Any]:
        """Fields of an ``Outcome`` whose plan is of the split program."""
        return {"item": self.program.item, **about_parts(self.program, self.problem)}

    def as_data_parallel(self) -> Timed:
        """The row of that plan, without a time where a device does not hold its part."""
        try:
            search = evaluate_given(self.problem, Decisions([self.data_parallel]), DATA_PARALLEL)
        except NothingFits as error:
            return Timed(DATA_PARALLEL, status=Status.OUT_OF_MEMORY, message=str(error))
        return Timed.of_search(DATA_PARALLEL, search)

    def searched(self, road: Road, method: str, budget: Budget, whole: Placement) -> SearchResult | str:
        """What a search in the simulator finds, or why nothing in one clause.

        Args:
          road: searches.
          method: its name.
          budget: of the search.
          whole: a plan of the whole, where it may begin.
        """
        start = self.starts(whole) if methods.find(method).uses_start else None
        try:
            return road.search(method, budget, start=start, problem=self.problem)
        except NothingFits as error:
            return str(error)

    def starts(self, whole: Placement | None) -> list[Placement]:
        """Where a search begins: data parallel and the plan of the whole with all copies together, the faster first.

        Neither leads further everywhere: on WaveNet 2x18 the slower one did, by a fifth.
        """
        rows = [self.data_parallel]
        if whole is not None:
            rows.append(carried_over(self.program, self.problem, whole))
        found = SimulatedEvaluator(self.problem).evaluate(np.stack(rows))
        fits = np.where(found.status == Status.OK, found.runtime_s, np.inf)
        return [Placement(self.problem, rows[i]) for i in np.argsort(fits, kind="stable")]


def about_parts(program: SplitProgram, problem: Problem) -> dict[str, Any]:
    """Fields of an ``Outcome`` that tell how the program of its plan has the batch in parts.

    Args:
      program: the split program.
      problem: it on a cluster; by its costs what stayed whole is told, the longest first.
    """
    splitting = program.item.splitting
    assert splitting is not None  # it was split
    time_of_op: Counter[str] = Counter()
    for name, nanoseconds in zip(problem.op_names, problem.compute_ns.min(axis=1).tolist(), strict=True):
        time_of_op[program.origin_of[name]] += nanoseconds
    return {
        "parts": splitting.parts,
        "batch_statistics": splitting.batch_statistics,
        "stayed_whole": tuple(program.sentences(time_of_op)),
    }


def in_parts(road: Road, batch_statistics: str, costs: str | None = None) -> InParts | str:
    """The program in parts, as ``InParts.of``, or why it cannot be, or does not run, in one clause."""
    try:
        return InParts.of(road, batch_statistics, costs)
    except (InputError, WorkerDied, DeadlineExceeded) as error:
        return _clause(error)


def _clause(error: Exception) -> str:
    """What an error says, without the remedy behind it: nothing was asked for that needs one."""
    return str(error).partition(";")[0]


def with_splitting(outcome: Outcome, item: Item | None) -> Outcome:
    """An outcome with what splitting the batch over the devices gives, or with a sentence on why it cannot be split.

    That is the row of data parallelism, which a run only tells of (``Outcome.instead``), by costs for which nothing is
    profiled.

    Args:
      outcome: of the program, whole.
      item: the program; None of a graph without one.
    """
    if item is None or len(replicas_of(outcome.problem.cluster.devices)) < 2 or outcome.parts > 1:
        return outcome
    try:
        split = InParts.estimated(item, outcome.problem, outcome.batch_statistics)
    except InputError as error:
        return dataclasses.replace(outcome, why_not_split=f"The batch cannot be split: {_clause(error)}.")
    return dataclasses.replace(outcome, instead=(split.as_data_parallel(),))
