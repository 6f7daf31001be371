"""Outcomes of searches on a machine that is not the one that the costs are of."""

from __future__ import annotations

from tf_placer.planning.live import search_live
from tf_placer.search.methods import Budget


def report_of(problem, machine, method="random", written=None):
    found = search_live(problem, machine, method, Budget(evaluations=600))
    return found if written is None else found.with_written(found.named(written))
