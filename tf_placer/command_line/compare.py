"""Places a workload with several methods to compare them."""

from __future__ import annotations

from collections.abc import Sequence

import rich.console

from tf_placer.command_line.choices import LAYER
from tf_placer.command_line.described import read_problem
from tf_placer.command_line.request import Request
from tf_placer.command_line.waits import searched, share_out, wait_to_compare
from tf_placer.errors import InputError
from tf_placer.planning.by_layer import in_layers
from tf_placer.planning.candidates import measure_candidates, try_candidate
from tf_placer.planning.outcome import Outcome, Timed, fastest
from tf_placer.problem.problem import Problem
from tf_placer.waiting.wait import Wait


def compare(request: Request, names: Sequence[str], console: rich.console.Console) -> Outcome:
    """Gives every method the same budget; the fastest is ``written``.

    That is its share of the whole wait, or all of it, as ``Request.budget_of`` says.

    A method that finds nothing that fits, cannot place this problem or wants a library is a line of the report.

    Raises:
      InputError: bad input, or no method found a placement that fits in the cluster's memory.
    """
    with wait_to_compare(request, names, console) as wait:
        item, problem = read_problem(request, console, wait)
        found = _found(problem, request, names, console, wait)
        if item is not None and problem.cluster.is_live:
            found = measure_candidates(item, problem, found, console, fastest, wait)
    chosen = fastest(found)
    if chosen is None:
        raise InputError(found[0].message)
    outcome = Outcome(item, problem, chosen, tuple(c for c in found if c is not chosen))
    return in_layers(outcome, request.seed) if request.by == LAYER else outcome


def _found(
    problem: Problem, request: Request, names: Sequence[str], console: rich.console.Console, wait: Wait
) -> list[Timed]:
    budgets = share_out(wait, request, names, problem.num_ops)
    found = []
    for name in names:
        with searched(wait, request, name, budgets[name].seconds):
            settings = request.settings.get(name)
            found.append(try_candidate(problem, name, budgets[name], request.seed, console, settings))
    return found
