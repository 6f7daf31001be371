"""Places a workload with one method, or with several to compare them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import rich.console

from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.workers import workers_of
from tf_placer.command_line.candidate import Candidate, find_candidate, measure_candidates
from tf_placer.command_line.report import Live, Report
from tf_placer.command_line.source import Source
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.graph.saved_model import read_saved_model
from tf_placer.problem.pinned import pinned
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.saved_model import plans_in
from tf_placer.search.budget import Budget
from tf_placer.search.live import PLAIN, LiveResult, Trial, search_live
from tf_placer.search.progress import ConsoleProgress


@dataclasses.dataclass(frozen=True)
class Request:
    """What to place where.

    Attributes:
      source: the program.
      cluster: the devices; a ``local`` one is also measured on.
      budget: of the method, or of each method.
      seed: of the search.
      costs: a word of ``build_problem``.
      held: op name -> device, of ops that have their place already; the program need not have them all.
    """

    source: Source
    cluster: Cluster
    budget: Budget
    seed: int
    costs: str | None = None
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)


def place(request: Request, method: str, console: rich.console.Console) -> Report:
    """Finds one method's placement, and random search's with as many evaluations.

    On live devices the runtime has the last word: see ``search_live``.

    Args:
      request: what to place where.
      method: a name of ``tf_placer.search.methods.names()``.
      console: is shown what goes on.

    Raises:
      InputError: bad input, or nothing fits in the cluster's memory.
    """
    item, problem = described(request, console)
    if problem.cluster.is_live:
        return _place_live(item, problem, request, method, console)
    chosen = find_candidate(problem, method, request.budget, request.seed, console)
    baselines = [_single(problem, request.seed, console)] if method != "single" else []
    if method not in ("single", "random") and chosen.result is not None and not chosen.result.interrupted:
        same = Budget(evaluations=chosen.result.evaluations)
        baselines.append(find_candidate(problem, "random", same, request.seed, console))
    return Report(item, problem, chosen, tuple(baselines))


def place_signatures(
    request: Request, method: str, console: rich.console.Console
) -> Iterator[tuple[str, Report]]:
    """Places signatures of a SavedModel, one after the other; what they share is where the first has it.

    Signatures that the model was exported with, but for those placed anew, come before all of these.

    Args:
      request: its source is a SavedModel and names the signatures, separated by commas.
      method: as in ``place``.
      console: as in ``place``.

    Yields:
      The name of each signature and its report.

    Raises:
      InputError: as ``place`` does; an unknown signature is told before the first search.
    """
    names = list(dict.fromkeys(request.source.signature.split(",")))
    model = read_saved_model(request.source.saved_model or "")
    for name in names:
        model.signature(name)
    plans = plans_in(model.path)
    held = {op: device for name in plans.keys() - set(names) for op, device in plans[name].items()}
    for name in names:
        source = dataclasses.replace(request.source, signature=name)
        report = place(dataclasses.replace(request, source=source, held=held), method, console)
        yield name, report
        held = report.result.placement.device_names | held


def compare(request: Request, methods: Sequence[str], console: rich.console.Console) -> Report:
    """Gives every method the same budget; the report's ``chosen`` is the fastest.

    Raises:
      InputError: bad input, or nothing fits in the cluster's memory.
    """
    item, problem = described(request, console)
    found = [find_candidate(problem, name, request.budget, request.seed, console) for name in methods]
    if problem.cluster.is_live:
        found = measure_candidates(item, problem, found, console)
    timed = [candidate for candidate in found if candidate.step_s is not None]
    if not timed:
        raise InputError(found[0].message)
    # On a tie the single device: a plan that gains nothing is not worth having.
    chosen = min(timed, key=lambda candidate: (candidate.step_s, candidate.method != "single"))
    return Report(item, problem, chosen, tuple(c for c in found if c is not chosen))


def described(request: Request, console: rich.console.Console) -> tuple[Item, Problem]:
    """Builds the program's graph and its problem on the cluster.

    Raises:
      InputError: an unknown workload, one that the cluster cannot run, or a server that does not answer.
    """
    if request.cluster.kind == "remote":
        workers_of(request.cluster).start()  # before hours of search, not after
    with console.status(f"building {request.source.name}"):
        item = request.source.item()
        problem = pinned(build_problem(item, request.cluster, request.costs), request.held)
    return item, problem


def _place_live(
    item: Item, problem: Problem, request: Request, method: str, console: rich.console.Console
) -> Report:
    """The report's ``chosen`` is what is recommended; the method's best and random search's stand beside it."""

    def progress(title: str, budget: Budget) -> ConsoleProgress:
        return ConsoleProgress(f"{title} on {problem.cluster.name}", budget, console)

    with RuntimeEvaluator(item, problem) as evaluator:
        found = search_live(problem, evaluator, method, request.budget, request.seed, progress)
    names = dict.fromkeys(("single", "random", PLAIN, method))
    trials = [trial for name in names if (trial := found.best_of(name)) is not None]
    others = [_as_candidate(found, trial) for trial in trials if trial is not found.recommended]
    chosen = _as_candidate(found, found.recommended)
    return Report(item, problem, chosen, tuple(others), Live(method, found))


def _as_candidate(found: LiveResult, trial: Trial) -> Candidate:
    return Candidate(
        trial.method, found.as_search_result(trial), trial.measured_s, trial.status, trial.message
    )


def _single(problem: Problem, seed: int, console: rich.console.Console) -> Candidate:
    return find_candidate(problem, "single", Budget(evaluations=problem.num_devices), seed, console)
