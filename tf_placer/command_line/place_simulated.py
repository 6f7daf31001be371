"""Places a workload where the simulator has the last word."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import rich.console

from tf_placer.command_line.choices import METHOD
from tf_placer.command_line.request import Request
from tf_placer.command_line.waits import AT_ONCE, searched, share_beside_control
from tf_placer.graph.item import Item
from tf_placer.method_spec import Role
from tf_placer.planning.candidates import find_candidate
from tf_placer.planning.outcome import Outcome, Timed, fastest
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.waiting.wait import Wait

_FEW = 1000  # more plans than such a method makes


def place_simulated(
    item: Item | None,
    problem: Problem,
    request: Request,
    method: str,
    console: rich.console.Console,
    wait: Wait,
) -> Outcome:
    """The simulator has the last word."""
    # Before the search, so that after Ctrl-C nothing is left but writing.
    with wait.phase(AT_ONCE):
        baselines = [made_at_once(problem, name, request, console) for name in beside(method)]
    budget, control_s = share_beside_control(wait, request, method, problem.num_ops)
    with searched(wait, request, method, budget.seconds):
        chosen = find_candidate(problem, method, budget, request.seed, console, request.settings.get(method))
    control = methods.the(Role.CONTROL).name
    searches = methods.find(method).goes_on and method != control
    if searches and chosen.search is not None and not chosen.search.interrupted:
        same = Budget(control_s, chosen.search.evaluations)
        # Ctrl-C: it had found nothing yet; the method has.
        with contextlib.suppress(KeyboardInterrupt), searched(wait, request, control, control_s):
            settings = request.settings.get(control)
            baselines.append(find_candidate(problem, control, same, request.seed, console, settings))
    return _outcome(item, problem, [chosen, *baselines], request)


def beside(method: str) -> tuple[str, ...]:
    """Names of the methods whose few plans stand beside those of another."""
    if Role.REFERENCE in methods.find(method).roles:
        return ()
    return tuple(spec.name for spec in methods.having(Role.BESIDE) if spec.name != method)


def _outcome(item: Item | None, problem: Problem, found: Sequence[Timed], request: Request) -> Outcome:
    """The outcome of candidates, the first one that of the method that was asked for."""
    asked = found[0]
    chosen = asked if request.write == METHOD else fastest(found, asked.name) or asked
    others = tuple(candidate for candidate in found if candidate is not chosen)
    return Outcome(item, problem, chosen, others, asked=asked.name)


def made_at_once(problem: Problem, method: str, request: Request, console: rich.console.Console) -> Timed:
    """The best of the few plans of a method that does not go on."""
    few = Budget(math.inf, _FEW)
    return find_candidate(problem, method, few, request.seed, console, request.settings.get(method))
