"""Placing for the least memory within a slow-down of the fastest plan."""

from __future__ import annotations

import operator

import rich.console

from tf_placer.command_line.candidate import find_candidate, measure_candidates
from tf_placer.command_line.place_simulated import beside, made_at_once
from tf_placer.command_line.report import Report
from tf_placer.command_line.request import Request
from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem


def place_least_memory(
    item: Item | None, problem: Problem, request: Request, method: str, console: rich.console.Console
) -> Report:
    """The plan of least memory, found in the simulator; on live devices it and the others are timed once."""
    settings = request.settings.get(method)
    found = [
        find_candidate(problem, method, request.budget, request.seed, console, settings, request.objective)
    ]
    found += [made_at_once(problem, name, request, console) for name in beside(method)]
    if item is not None and problem.cluster.is_live and item.runs_standalone:
        found = measure_candidates(item, problem, found, console, written=operator.itemgetter(0))
    return Report(item, problem, found[0], tuple(found[1:]))
