"""The requested program as a problem, narrowed by plans, pins and requests of the program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import rich.console
import rich.text

from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.command_line.request import Request
from tf_placer.graph.item import Item
from tf_placer.graph_file.read import read_graph_file
from tf_placer.planning.forms import Form, replicas_of
from tf_placer.planning.road import BUILD, PROFILE, Road, compiling
from tf_placer.planning.stages import Stage
from tf_placer.problem.pins import narrowed_units, with_fixed_ops, with_pins, with_requested_devices
from tf_placer.problem.placement import PlanFile, device_positions
from tf_placer.problem.problem import Problem
from tf_placer.workers.local_workers import workers_of
from tf_placer.workloads.registry import is_kept

SPLIT = "splitting the batch"
# Rules for what was never done on this machine, from an idle one with two cores.
_TRACE_S, _READ_S, _PROFILE_S = 20.0, 3.0, 55.0


class Reading(Road):
    """A command's request on its way: the program is built, profiled on live devices, and then what follows is done."""

    def __init__(
        self,
        request: Request,
        console: rich.console.Console,
        method: str = "",
        check: Callable[[Item, Problem], object] = lambda item, problem: None,
        is_equal: bool = False,
    ) -> None:
        """Begins.

        Args:
          request: the program and the devices.
          console: is shown what goes on.
          method: that was asked for, if any.
          is_equal: as ``Road`` takes it.
          check: is given the program and its problem with estimated costs before anything is measured, too.
        """
        super().__init__(request.asked(method), console, is_equal=is_equal)
        self.request = request
        self._check = check
        workload = request.source.workload
        self._is_traced = workload is not None and not is_kept(workload)  # once it was, it is kept

    def read(self, rest: Callable[[], Sequence[Stage]] = list) -> None:
        """Builds the program's graph and its problem on the cluster, and runs the stages that follow.

        Pins and plans are held against the graph before it is profiled, which takes a minute.

        Args:
          rest: gives what follows, as far as it is known when it is called: at the start, and with the problem there.

        Raises:
          InputError: an unknown workload, one that the cluster cannot run, a pin or plan that is not for it, or a
            server that does not answer; or what the check or one of the stages raises.
        """

        def described(_: float) -> None:
            self._describe()
            self.stages.then(rest())

        def built(seconds: float) -> None:
            source, cluster = self.request.source, self.request.cluster
            if source.graph:
                self.form = Form(read_graph_file(source.graph).problem(cluster))
                self.stages.then(rest())
                return
            if cluster.kind == "remote":
                workers_of(cluster).start()  # before hours of search, not after
            self.item = source.item()
            if not self.request.is_profiled:
                described(seconds)

        profiling = [self.profiling(described)] if self.request.is_profiled else []
        self.stages.run([*compiling(self.stages), self.building(built), *profiling, *rest()])

    def building(self, run: Callable[[float], object]) -> Stage:
        """The stage that reads or traces the program."""
        name = self.asked.name
        if self._is_traced:
            return self.stages.kept(BUILD, run, _TRACE_S, f"building {name} anew", is_once=True)
        return self.stages.kept(BUILD, run, _READ_S, f"building {name}")

    def profiling(self, run: Callable[[float], object]) -> Stage:
        """The stage that profiles it: as long as the last time, when what was measured was kept."""
        key = f"profiling {self.asked.where}"
        is_once = self.stages.durations.of(key) is None
        return self.stages.kept(PROFILE, run, _PROFILE_S, key, is_once=is_once)

    def splitting(self, run: Callable[[float, float], object]) -> list[Stage]:
        """The batch split over the devices for the report; empty where it is in parts already, or there is one device.

        Args:
          run: splits it; is given the seconds that it takes about, and those that are left for it.
        """
        source, parts = self.request.source, len(replicas_of(self.request.cluster.devices))
        if source.graph or source.parts > 1 or parts < 2:
            return []
        key = f"splitting the batch of {source.name} over {parts} devices"
        seconds = self.stages.durations.known(key, self.split_s)
        return [Stage(SPLIT, functools.partial(run, seconds), seconds, key, is_optional=True)]

    def _describe(self) -> None:
        request, item = self.request, self.program

        def checked(problem: Problem) -> None:
            _decided(request, item, problem)
            self._check(item, problem)
            if request.is_profiled:
                self.expect_profile(item)

        built = build_problem(item, request.cluster, request.costs, self.profiles, checked)
        problem = _decided(request, item, built)
        console = self.stages.console
        if request.plan is not None and request.complete_plan:
            _tell_what_is_searched(request.plan, problem, console)
        if request.respect_devices is not None and item.requested_devices:
            decided = narrowed_units(built, problem)
            problem = _with_requests(item, problem, decided, request.respect_devices, console)
        self.form = Form(problem, item)


def _decided(request: Request, item: Item, problem: Problem) -> Problem:
    """The problem with what is held, pinned or planned allowed only where it is to be."""
    held = with_fixed_ops(item, problem, device_positions(problem, request.held))
    problem = with_pins(item, held, request.pins)
    return problem if request.plan is None else _with_plan(item, problem, request.plan, request.complete_plan)


def _with_requests(
    item: Item, problem: Problem, is_decided: np.ndarray, respect: bool, console: rich.console.Console
) -> Problem:
    """The problem with the devices that the program asks for, or without; says which, in one line."""
    asking = f"{len(item.requested_devices)} of {problem.num_ops} ops ask for a device in the program itself"
    if not respect:
        line = f"{asking}; they are placed anew, and --respect_devices keeps them there"
    else:
        requests = with_requested_devices(item, problem, is_decided)
        problem = requests.problem
        line = f"{asking}; kept there: {requests.num_respected}"
        if requests.num_dropped:
            line += f", placed freely: {requests.num_dropped} ({requests.reasons})"
    console.print(rich.text.Text(line), soft_wrap=True)
    return problem


def _with_plan(item: Item, problem: Problem, plan: PlanFile, complete: bool) -> Problem:
    """The problem with the ops that a plan names allowed only where it puts them.

    Raises:
      InputError: the plan does not fit the graph, or has an order or clusters where the rest is searched.
    """
    if complete:
        plan = plan.op_by_op(problem, is_part=True)
    else:
        try:
            plan = plan.op_by_op(problem)
            plan.check_complete(problem)
        except InputError as error:
            raise InputError(f"{error}; or search the rest of it with --complete_plan") from None
    for name, values in zip(("priorities", "clusters"), plan.per_op(problem), strict=True):
        if values is not None and complete:
            raise InputError(
                f"{plan.source} has {name}, which say nothing of ops that are searched; take them out, or leave out "
                "--complete_plan"
            )
    return with_fixed_ops(item, problem, plan.device_of_op(problem))


def _tell_what_is_searched(plan: PlanFile, problem: Problem, console: rich.console.Console) -> None:
    plan = plan.op_by_op(problem, is_part=True)
    num_planned = len(plan.device_of_op(problem))
    free = (problem.allowed.sum(axis=1) > 1)[problem.unit_of_op]
    console.print(
        f"{plan.source} says where {num_planned} of {problem.num_ops} ops go; {free.sum()} are searched. "
        f"{len(plan.devices) - num_planned} ops that it names are not in this graph.",
        soft_wrap=True,
    )
