"""A program whose batch is in parts, placed beside the program as it is."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planning.outcome import DATA_PARALLEL, Timed
from tf_placer.planning.road import Road
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search.shortest import NothingFits, evaluate_given
from tf_placer.transform.split.plans import carried_over, data_parallel_plan
from tf_placer.transform.split.split_batch import SplitProgram, split_program


@dataclasses.dataclass(frozen=True, eq=False)
class InParts:
    """A split program on a cluster.

    Attributes:
      program: the split program.
      problem: it on the cluster, U units.
      data_parallel: [U] the plan in which every device computes its part of the batch.
    """

    program: SplitProgram
    problem: Problem
    data_parallel: np.ndarray

    @staticmethod
    def of(road: Road, devices: tuple[int, ...], batch_statistics: str) -> InParts:
        """The program of a road with a part of the batch for each of some devices.

        Raises:
          InputError: it has no batch, or one of fewer examples.
        """
        program = split_program(road.program, len(devices), batch_statistics)
        problem = build_problem(program.item, road.asked.cluster, "analytic")
        return InParts(program, problem, data_parallel_plan(program, problem, devices))

    def as_data_parallel(self) -> Timed:
        """The row of that plan, without a time where a device does not hold its part."""
        try:
            found = evaluate_given(self.problem, Decisions([self.data_parallel]), DATA_PARALLEL)
        except NothingFits as error:
            return Timed(DATA_PARALLEL, status=Status.OUT_OF_MEMORY, message=str(error))
        return Timed.of_search(DATA_PARALLEL, found)

    def start(self, whole: Placement | None) -> Placement:
        """Where a search begins: data parallel, or the placement of the whole with all copies together if faster."""
        rows = [self.data_parallel]
        if whole is not None:
            rows.append(carried_over(self.program, self.problem, whole))
        found = SimulatedEvaluator(self.problem).evaluate(np.stack(rows))
        fits = np.where(found.status == Status.OK, found.runtime_s, np.inf)
        return Placement(self.problem, rows[int(np.argmin(fits))])


def in_parts(road: Road, devices: tuple[int, ...], batch_statistics: str) -> InParts | str:
    """The program in parts, or why it cannot be, in one clause."""
    try:
        return InParts.of(road, devices, batch_statistics)
    except InputError as error:
        return str(error)
