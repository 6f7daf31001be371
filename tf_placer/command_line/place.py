"""Places a workload with one method, or with several to compare them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import rich.console
import rich.text

from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.candidate import Candidate, find_candidate, measure_candidates, try_candidate
from tf_placer.command_line.method_settings import MethodSettings
from tf_placer.command_line.report import Live, Report, fastest
from tf_placer.command_line.source import Source
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.graph_file.read import read_graph_file
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.pins import Pin, pinned, with_fixed_ops, with_pins
from tf_placer.problem.plan_file import PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.problem.requested import narrowed_units, with_requested_devices
from tf_placer.rewrite.saved_model import plans_in
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.search.live import LiveResult, Trial, search_live
from tf_placer.search.progress import ConsoleProgress
from tf_placer.search.search import evaluate_given
from tf_placer.search.spec import Role
from tf_placer.workers.workers import workers_of

FASTEST, METHOD = "fastest", "method"
WRITE = (FASTEST, METHOD)

_FEW = 1000  # more plans than such a method makes


@dataclasses.dataclass(frozen=True)
class Request:
    """What to place where.

    Attributes:
      source: the program.
      cluster: the devices; a ``local`` one is also measured on.
      budget: of the method, or of each method.
      seed: of the search.
      costs: a word of ``build_problem``.
      pins: ops that must be on some device.
      plan: a plan to apply instead of searching one.
      complete_plan: what the plan does not say of this graph is searched, and what it says of ops that are not there
        is ignored; else such a plan is refused.
      respect_devices: ops that ask for a device in the program itself are on such a device; False places them anew.
        What is not kept is told; None leaves them alone and says nothing.
      held: op name -> device, of ops that have their place already; the program need not have them all.
      settings: method -> setting -> value, of those that take part; the others have their defaults.
      write: whose plan is written: the ``"fastest"``, whoever found it, or that of the ``"method"``.

    Raises:
      InputError: a plan and pins are given, or ``write`` is another word.
    """

    source: Source
    cluster: Cluster
    budget: Budget
    seed: int
    costs: str | None = None
    pins: tuple[Pin, ...] = ()
    plan: PlanFile | None = None
    complete_plan: bool = False
    respect_devices: bool | None = None
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: MethodSettings = dataclasses.field(default_factory=dict)
    write: str = FASTEST

    def __post_init__(self) -> None:
        if self.write not in WRITE:
            raise InputError(f"--write={self.write}: give one of {', '.join(WRITE)}")
        if self.plan is not None and self.pins:
            raise InputError(
                "--plan and --pin are given; a plan pins what it names: edit it, or leave it away"
            )
        if self.source.graph:
            self._check_graph()
        if self.complete_plan and self.plan is None:
            raise InputError("--complete_plan is given without --plan; say which plan to complete")

    def _check_graph(self) -> None:
        """A profiled graph has no program to run, to pin ops of or to profile.

        Raises:
          InputError: something that needs one is asked for.
        """
        asked = {"--pin": self.pins, "--plan": self.plan, "--respect_devices": self.respect_devices}
        for flag, value in (asked | {"--costs": self.costs}).items():
            if value:
                raise InputError(f"{flag} is given with --graph, which has no program; leave it away")
        if self.cluster.is_live:
            raise InputError(
                f"--cluster={self.cluster.name} has live devices, and --graph has nothing to run on them; "
                "give a preset or a .toml file without addresses"
            )


def place(request: Request, method: str, console: rich.console.Console) -> Report:
    """Finds one method's placement, and those of plainer ones beside it; the fastest is ``chosen``.

    Random search gets as many evaluations, but no more time than the budget has. With ``--write=method`` the method's
    own is chosen. On live devices the runtime has the last word: see ``search_live``. Where they cannot run the program
    (``Item.why_not_standalone``) the simulator has it, and that is said.

    Args:
      request: what to place where.
      method: a name of ``tf_placer.search.methods.names()``.
      console: is shown what goes on.

    Raises:
      InputError: bad input, or nothing fits in the cluster's memory.
    """
    item, problem = _read(request, console)
    if item is None:
        return _place_simulated(None, problem, request, method, console)
    is_given = request.plan is not None or request.pins or request.respect_devices
    if is_given and (problem.allowed.sum(axis=1) == 1).all():
        return _place_given(item, problem, request, console)
    if problem.cluster.is_live and item.runs_standalone:
        return _place_live(item, problem, request, method, console)
    if problem.cluster.is_live:
        why = f"No worker can run {item.name}: {item.why_not_standalone}. What follows is the simulator's word alone."
        console.print(rich.text.Text(why), soft_wrap=True)
    return _place_simulated(item, problem, request, method, console)


def _read(request: Request, console: rich.console.Console) -> tuple[Item | None, Problem]:
    """As ``described``; of a profiled graph there is no item."""
    if request.source.graph:
        return None, read_graph_file(request.source.graph).problem(request.cluster)
    return described(request, console)


def _place_simulated(
    item: Item | None, problem: Problem, request: Request, method: str, console: rich.console.Console
) -> Report:
    """The simulator has the last word."""
    # Before the search, so that after Ctrl-C nothing is left but writing.
    baselines = [_made_at_once(problem, name, request, console) for name in beside(method)]
    chosen = find_candidate(
        problem, method, request.budget, request.seed, console, request.settings.get(method)
    )
    control = methods.the(Role.CONTROL).name
    searches = methods.find(method).goes_on and method != control
    if searches and chosen.result is not None and not chosen.result.interrupted:
        same = request.budget.capped(chosen.result.evaluations)
        with contextlib.suppress(KeyboardInterrupt):  # it had found nothing yet; the method has
            settings = request.settings.get(control)
            baselines.append(find_candidate(problem, control, same, request.seed, console, settings))
    return _report(item, problem, [chosen, *baselines], request)


def beside(method: str) -> tuple[str, ...]:
    """Names of the methods whose few plans stand beside those of another."""
    if Role.REFERENCE in methods.find(method).roles:
        return ()
    return tuple(spec.name for spec in methods.having(Role.BESIDE) if spec.name != method)


def _report(item: Item | None, problem: Problem, found: Sequence[Candidate], request: Request) -> Report:
    """A report of candidates, the first one that of the method that was asked for."""
    asked = found[0]
    chosen = asked if request.write == METHOD else fastest(found, asked.method) or asked
    others = tuple(candidate for candidate in found if candidate is not chosen)
    return Report(item, problem, chosen, others, asked=asked.method)


def place_signatures(
    request: Request, method: str, console: rich.console.Console
) -> Iterator[tuple[str, Report]]:
    """Places signatures of a SavedModel, one after the other; what they share is where the first has it.

    Signatures that the model was exported with, but for those placed anew, come before all of these.

    Args:
      request: its source is a SavedModel and names the signatures, separated by commas; it is read unless it has been.
      method: as in ``place``.
      console: as in ``place``.

    Yields:
      The name of each signature and its report.

    Raises:
      InputError: as ``place`` does; an unknown signature is told before the first search.
    """
    names = list(dict.fromkeys(request.source.signature.split(",")))
    source = request.source.with_model()
    model = source.model
    assert model is not None  # just read
    for name in names:
        model.signature(name)
    plans = plans_in(model.path)
    held = {op: device for name in plans.keys() - set(names) for op, device in plans[name].items()}
    for name in names:
        of_one = dataclasses.replace(source, signature=name)
        report = place(dataclasses.replace(request, source=of_one, held=held), method, console)
        yield name, report
        held = report.result.placement.device_names | held


def compare(request: Request, names: Sequence[str], console: rich.console.Console) -> Report:
    """Gives every method the same budget; the report's ``chosen`` is the fastest.

    A method that finds nothing that fits, cannot place this problem or wants a library is a line of the report.

    Raises:
      InputError: bad input, or no method found a placement that fits in the cluster's memory.
    """
    item, problem = _read(request, console)
    found = [
        try_candidate(problem, name, request.budget, request.seed, console, request.settings.get(name))
        for name in names
    ]
    if item is not None and problem.cluster.is_live:
        found = measure_candidates(item, problem, found, console)
    chosen = fastest(found)
    if chosen is None:
        raise InputError(found[0].message)
    return Report(item, problem, chosen, tuple(c for c in found if c is not chosen))


def described(
    request: Request,
    console: rich.console.Console,
    check: Callable[[Item, Problem], object] = lambda item, problem: None,
) -> tuple[Item, Problem]:
    """Builds the program's graph and its problem on the cluster.

    Pins and plans are held against the graph before it is profiled, which takes a minute.

    Args:
      request: the program and the devices.
      console: is shown what goes on.
      check: is given the program and its problem with estimated costs before anything is measured, too.

    Raises:
      InputError: an unknown workload, one that the cluster cannot run, a pin or plan that is not for it, or a server
        that does not answer; or what ``check`` raises.
    """
    if request.cluster.kind == "remote":
        workers_of(request.cluster).start()  # before hours of search, not after
    with console.status(
        rich.text.Text(f"building {request.source.name}")
    ):  # brackets of a name are no markup
        item = request.source.item()

        def checked(problem: Problem) -> None:
            _decided(request, item, problem)
            check(item, problem)

        built = build_problem(item, request.cluster, request.costs, check=checked)
    problem = _decided(request, item, built)
    if request.plan is not None and request.complete_plan:
        _tell_what_is_searched(request.plan, problem, console)
    if request.respect_devices is not None and item.requested_devices:
        problem = _with_requests(
            item, problem, narrowed_units(built, problem), request.respect_devices, console
        )
    return item, problem


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
    if not complete:
        try:
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
    named = len(plan.device_of_op(problem))
    free = (problem.allowed.sum(axis=1) > 1)[problem.unit_of_op]
    console.print(
        f"{plan.source} says where {named} of {problem.num_ops} ops go; {free.sum()} are searched. "
        f"{len(plan.devices) - named} ops that it names are not in this graph.",
        soft_wrap=True,
    )


def _place_given(item: Item, problem: Problem, request: Request, console: rich.console.Console) -> Report:
    """Every op is pinned: the one placement there is, beside the best single device without pins."""
    free = build_problem(item, request.cluster, request.costs)
    plan = Candidate("plan", evaluate_given(free, Decisions([problem.allowed.argmax(axis=1)]), "plan"))
    candidates = [plan, _made_at_once(free, methods.the(Role.REFERENCE).name, request, console)]
    if free.cluster.is_live:
        candidates = measure_candidates(item, free, candidates, console)
    return Report(item, free, candidates[0], tuple(candidates[1:]))


def _place_live(
    item: Item, problem: Problem, request: Request, method: str, console: rich.console.Console
) -> Report:
    """The method's best and those of the plainer ones stand beside what is recommended.

    Raises:
      InputError: the method's own plan was asked for, and none of it ran.
    """

    def progress(title: str, budget: Budget) -> ConsoleProgress:
        return ConsoleProgress(f"{title} on {problem.cluster.name}", budget, console)

    with RuntimeEvaluator(item, problem) as evaluator:
        found = search_live(
            problem, evaluator, method, request.budget, request.seed, progress, settings=request.settings
        )
    roles = (Role.REFERENCE, Role.CONTROL, Role.PLAIN)
    names = dict.fromkeys((*(methods.the(role).name for role in roles), method))
    trials = [trial for name in names if (trial := found.best_of(name)) is not None]
    candidates = {trial: _as_candidate(found, trial) for trial in (*trials, found.recommended)}
    recommended = candidates[found.recommended]
    own = found.best_of(method)
    if request.write == METHOD and own is None:
        raise InputError(
            f"no plan of {method} was measured, so --write={METHOD} has none to write; leave it away for the fastest"
        )
    chosen = candidates[own] if request.write == METHOD and own is not None else recommended
    others = tuple(candidate for candidate in candidates.values() if candidate is not chosen)
    return Report(item, problem, chosen, others, Live(recommended, found), asked=method)


def _as_candidate(found: LiveResult, trial: Trial) -> Candidate:
    return Candidate(
        trial.method, found.as_search_result(trial), trial.measured_s, trial.status, trial.message
    )


def _made_at_once(
    problem: Problem, method: str, request: Request, console: rich.console.Console
) -> Candidate:
    """The best of the few plans of a method that does not go on."""
    few = Budget(math.inf, _FEW)
    return find_candidate(problem, method, few, request.seed, console, request.settings.get(method))
