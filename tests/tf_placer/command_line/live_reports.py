"""Reports of searches on a machine that is not the one that the costs are of."""

from __future__ import annotations

from tf_placer.command_line.reporting.candidate import Candidate
from tf_placer.command_line.reporting.report import Live, Report
from tf_placer.planning.live import search_live
from tf_placer.search.budget import Budget


def report_of(problem, machine, method="random", written=None):
    found = search_live(problem, machine, method, Budget(evaluations=600))

    def candidate(trial):
        return Candidate(trial.method, found.as_search_result(trial), trial.measured_s)

    recommended = candidate(found.recommended)
    others = [found.best_of(name) for name in ("single", "random", "local_search")]
    others = tuple(candidate(trial) for trial in others if trial is not found.recommended)
    if written is None:
        return Report(None, problem, recommended, others, Live(recommended, found), asked=method)
    chosen = next(one for one in others if one.method == written)
    others = tuple(one for one in (recommended, *others) if one is not chosen)
    return Report(None, problem, chosen, others, Live(recommended, found), asked=method)
