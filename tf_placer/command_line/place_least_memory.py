"""Placing for the least memory within a slow-down of the fastest plan."""

from __future__ import annotations

import operator

import rich.console

from tf_placer.command_line.place_simulated import beside, made_at_once
from tf_placer.command_line.request import Request
from tf_placer.command_line.waits import AT_ONCE, searched, share_beside_control
from tf_placer.graph.item import Item
from tf_placer.planning.candidates import find_candidate, measure_candidates
from tf_placer.planning.outcome import Outcome
from tf_placer.problem.problem import Problem
from tf_placer.waiting.wait import Wait


def place_least_memory(
    item: Item | None,
    problem: Problem,
    request: Request,
    method: str,
    console: rich.console.Console,
    wait: Wait,
) -> Outcome:
    """The plan of least memory, found in the simulator; on live devices it and the others are timed once."""
    settings = request.settings.get(method)
    with wait.phase(AT_ONCE):
        others = [made_at_once(problem, name, request, console) for name in beside(method)]
    budget, _ = share_beside_control(wait, request, method, problem.num_ops)
    with searched(wait, request, method, budget.seconds):
        own = find_candidate(problem, method, budget, request.seed, console, settings, request.objective)
    found = [own, *others]
    if item is not None and problem.cluster.is_live and item.runs_standalone:
        found = measure_candidates(item, problem, found, console, operator.itemgetter(0), wait)
    return Outcome(item, problem, found[0], tuple(found[1:]))
