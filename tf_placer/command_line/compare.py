"""Places a workload with several methods to compare them."""

from __future__ import annotations

from collections.abc import Sequence

import rich.console

from tf_placer.command_line.by_layer import in_layers
from tf_placer.command_line.candidate import measure_candidates, try_candidate
from tf_placer.command_line.described import read_problem
from tf_placer.command_line.report import Report, fastest
from tf_placer.command_line.request import LAYER, Request
from tf_placer.errors import InputError


def compare(request: Request, names: Sequence[str], console: rich.console.Console) -> Report:
    """Gives every method the same budget; the report's ``chosen`` is the fastest.

    A method that finds nothing that fits, cannot place this problem or wants a library is a line of the report.

    Raises:
      InputError: bad input, or no method found a placement that fits in the cluster's memory.
    """
    item, problem = read_problem(request, console)
    found = [
        try_candidate(problem, name, request.budget, request.seed, console, request.settings.get(name))
        for name in names
    ]
    if item is not None and problem.cluster.is_live:
        found = measure_candidates(item, problem, found, console, fastest)
    chosen = fastest(found)
    if chosen is None:
        raise InputError(found[0].message)
    report = Report(item, problem, chosen, tuple(c for c in found if c is not chosen))
    return in_layers(report, request.seed) if request.by == LAYER else report
