"""Places a workload with one method, beside plainer ones."""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Iterator

import rich.console
import rich.text

from tf_placer.calibration.build_problem import build_problem
from tf_placer.command_line.choices import LAYER
from tf_placer.command_line.described import read_problem
from tf_placer.command_line.place_least_memory import place_least_memory
from tf_placer.command_line.place_live import place_live
from tf_placer.command_line.place_simulated import made_at_once, place_simulated
from tf_placer.command_line.request import Request
from tf_placer.command_line.waits import Kind, wait_to_place, work_to_place
from tf_placer.graph.item import Item
from tf_placer.method_spec import Role
from tf_placer.planning.by_layer import beside_layers, in_layers
from tf_placer.planning.candidates import measure_candidates
from tf_placer.planning.outcome import GIVEN, Outcome, Timed
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.pins import pins_of_each
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.saved_model import plans_in
from tf_placer.search import methods
from tf_placer.search.budget import WHOLE
from tf_placer.search.search import evaluate_given
from tf_placer.waiting.begun import begins_at, begun_s
from tf_placer.waiting.wait import Wait
from tf_placer.workers.local_workers import import_meanwhile


def place(request: Request, method: str, console: rich.console.Console) -> Outcome:
    """Finds one method's placement, and those of plainer ones beside it; the fastest is ``written``.

    Random search gets as many evaluations, but no more than a tenth of the time, or, where the budget is of each
    search, than that. With ``--write=method`` the method's own is chosen; with ``--by=layer`` the plan that is written
    is made of it, in whole layers, and without, what such a plan takes is told. On live devices the runtime has the
    last word: see ``search_live``. Where they cannot run the program (``Item.why_not_standalone``) the simulator has
    it, and that is said.

    Args:
      request: what to place where.
      method: a name of ``tf_placer.methods()``.
      console: is shown what goes on.

    Raises:
      InputError: bad input, or nothing fits in the cluster's memory.
    """
    outcome = _place(request, method, console)
    return (in_layers if request.by == LAYER else beside_layers)(outcome, request.seed)


def _place(request: Request, method: str, console: rich.console.Console) -> Outcome:
    methods.find(method)
    with wait_to_place(request, method, console) as wait:
        if not request.objective.is_memory:  # that asks the devices in the end
            import_meanwhile(request.cluster)
        item, problem = read_problem(request, console, wait)
        if item is None:
            how = place_least_memory if request.objective.is_memory else place_simulated
            return how(None, problem, request, method, console, wait)
        is_given = request.plan is not None or request.pins or request.respect_devices
        if is_given and (problem.allowed.sum(axis=1) == 1).all():
            wait.replan(work_to_place(request, method, Kind.APPLIED, problem))
            return _place_given(item, problem, request, console, wait)
        if request.objective.is_memory:
            return place_least_memory(item, problem, request, method, console, wait)
        if problem.cluster.is_live and item.runs_standalone:
            wait.replan(work_to_place(request, method, Kind.LIVE, problem))
            return place_live(item, problem, request, method, console, wait)
        if problem.cluster.is_live:
            why = f"No worker can run {item.name}: {item.why_not_standalone}."
            wait.tell(f"{why} What follows is the simulator's word alone.")
            wait.replan(work_to_place(request, method, Kind.SIMULATED, problem))
        return place_simulated(item, problem, request, method, console, wait)


def place_signatures(
    request: Request, method: str, console: rich.console.Console
) -> Iterator[tuple[str, Outcome]]:
    """Places signatures of a SavedModel, one after the other; what they share is where the first has it.

    Signatures that the model was exported with, but for those placed anew, come before all of these.

    Args:
      request: its source is a SavedModel and names the signatures, separated by commas; it is read unless it has been.
      method: as in ``place``.
      console: as in ``place``.

    Yields:
      The name of each signature and its report.

    Raises:
      InputError: as ``place`` does; an unknown signature, and a pin that matches in none of them, is told before the
        first search.
    """
    names = list(dict.fromkeys(request.source.signature.split(",")))
    source = request.source.with_model()
    model = source.model
    assert model is not None  # just read
    for name in names:
        model.signature(name)
    pins = dict.fromkeys(names, request.pins)
    if request.pins and len(names) > 1:
        items = {name: dataclasses.replace(source, signature=name).item() for name in names}
        pins = pins_of_each({name: item.index.names for name, item in items.items()}, request.pins)
    plans = plans_in(model.path)
    held = {op: device for name in plans.keys() - set(names) for op, device in plans[name].items()}
    share = request.budget.seconds / len(names) if request.budget_of == WHOLE else request.budget.seconds
    budget = dataclasses.replace(request.budget, seconds=share)
    for position, name in enumerate(names):
        of_one = dataclasses.replace(source, signature=name)
        one = dataclasses.replace(request, source=of_one, held=held, budget=budget, pins=pins[name])
        with begins_at(time.monotonic() if position else begun_s()):
            report = place(one, method, console)
        yield name, report
        held = report.placement.device_names | held


def _place_given(
    item: Item, problem: Problem, request: Request, console: rich.console.Console, wait: Wait
) -> Outcome:
    """Every op is pinned: the one placement there is, beside the best single device without pins."""
    free = build_problem(item, request.cluster, request.costs)
    given = evaluate_given(free, Decisions([problem.allowed.argmax(axis=1)]), GIVEN)
    candidates = [
        Timed.of_search(GIVEN, given),
        made_at_once(free, methods.the(Role.REFERENCE).name, request, console),
    ]
    if free.cluster.is_live:
        candidates = measure_candidates(item, free, candidates, console, operator.itemgetter(0), wait)
    return Outcome(item, free, candidates[0], tuple(candidates[1:]))
