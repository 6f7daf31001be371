"""The program that was asked for as a problem, with what is decided already."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import rich.console
import rich.text

from tf_placer.calibration.build_problem import build_problem
from tf_placer.calibration.profile import awaited_s
from tf_placer.command_line.request import Request
from tf_placer.command_line.waits import BUILD, PROFILE
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.graph_file.read import read_graph_file
from tf_placer.problem.pins import pinned, with_fixed_ops, with_pins
from tf_placer.problem.plan_file import PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.problem.requested import narrowed_units, with_requested_devices
from tf_placer.search.compiling import compile_within
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import roughly
from tf_placer.workers.workers import workers_of


def read_problem(request: Request, console: rich.console.Console, wait: Wait) -> tuple[Item | None, Problem]:
    """As ``described``; of a profiled graph there is no item."""
    if request.source.graph:
        compile_within(wait)
        with wait.phase(BUILD):
            return None, read_graph_file(request.source.graph).problem(request.cluster)
    return described(request, console, wait)


def described(
    request: Request,
    console: rich.console.Console,
    wait: Wait,
    check: Callable[[Item, Problem], object] = lambda item, problem: None,
) -> tuple[Item, Problem]:
    """Builds the program's graph and its problem on the cluster.

    Pins and plans are held against the graph before it is profiled, which takes a minute.

    Args:
      request: the program and the devices.
      console: is shown what goes on.
      wait: has the phases of ``building``.
      check: is given the program and its problem with estimated costs before anything is measured, too.

    Raises:
      InputError: an unknown workload, one that the cluster cannot run, a pin or plan that is not for it, or a server
        that does not answer; or what ``check`` raises.
    """
    if request.cluster.kind == "remote":
        workers_of(request.cluster).start()  # before hours of search, not after
    compile_within(wait)
    with wait.phase(BUILD):
        item = request.source.item()

    def checked(problem: Problem) -> None:
        _decided(request, item, problem)
        check(item, problem)
        if request.is_profiled and item.runs_standalone:
            tell_of_profile(item, problem, wait)

    with wait.phase(PROFILE if request.is_profiled else BUILD):
        built = build_problem(item, request.cluster, request.costs, check=checked)
    problem = _decided(request, item, built)
    if request.plan is not None and request.complete_plan:
        _tell_what_is_searched(request.plan, problem, console)
    if request.respect_devices is not None and item.requested_devices:
        problem = _with_requests(
            item, problem, narrowed_units(built, problem), request.respect_devices, console
        )
    return item, problem


def tell_of_profile(item: Item, problem: Problem, wait: Wait) -> None:
    """Says how long profiling takes where it is not kept, and what of it will be kept."""
    seconds = awaited_s(item, problem.cluster)
    wait.expect({PROFILE: seconds})
    if seconds:
        wait.tell(f"Profiling takes {roughly(seconds)}, once; it is kept, and later runs need none of it.")


def _decided(request: Request, item: Item, problem: Problem) -> Problem:
    """The problem with what is held, pinned or planned allowed only where it is to be."""
    problem = with_pins(item, pinned(item, problem, request.held), request.pins)
    return problem if request.plan is None else _with_plan(item, problem, request.plan, request.complete_plan)


def _with_requests(
    item: Item, problem: Problem, is_decided: np.ndarray, respect: bool, console: rich.console.Console
) -> Problem:
    """The problem with the devices that the program asks for, or without; says which, in one line."""
    asking = f"{len(item.requested_devices)} of {problem.num_ops} ops ask for a device in the program itself"
    if not respect:
        line = f"{asking}; they are placed anew, and --respect_devices keeps them there"
    else:
        found = with_requested_devices(item, problem, is_decided)
        problem = found.problem
        line = f"{asking}; kept there: {found.num_respected}"
        if found.num_dropped:
            line += f", placed freely: {found.num_dropped} ({found.reasons})"
    console.print(rich.text.Text(line), soft_wrap=True)
    return problem


def _with_plan(item: Item, problem: Problem, plan: PlanFile, complete: bool) -> Problem:
    """The problem with the ops that a plan names allowed only where it puts them.

    Raises:
      InputError: the plan does not fit the graph, or decides more than devices, which no graph can be given yet.
    """
    if complete:
        plan = plan.op_by_op(problem, is_part=True)
    else:
        try:
            plan = plan.op_by_op(problem)
            plan.check_complete(problem)
        except InputError as error:
            raise InputError(f"{error}; or search the rest of it with --complete_plan") from None
    plan.check_schedule(problem)
    if plan.schedules:
        raise InputError(
            f"{plan.source} has priorities or clusters, which cannot be written into a graph yet; take them out"
        )
    return with_fixed_ops(item, problem, plan.device_of_op(problem))


def _tell_what_is_searched(plan: PlanFile, problem: Problem, console: rich.console.Console) -> None:
    plan = plan.op_by_op(problem, is_part=True)
    named = len(plan.device_of_op(problem))
    free = (problem.allowed.sum(axis=1) > 1)[problem.unit_of_op]
    console.print(
        f"{plan.source} says where {named} of {problem.num_ops} ops go; {free.sum()} are searched. "
        f"{len(plan.devices) - named} ops that it names are not in this graph.",
        soft_wrap=True,
    )
