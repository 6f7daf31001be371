"""Whom the page on learning compares: every agent there is, and who learns nothing."""

from __future__ import annotations

import dataclasses

from experiments.curves.study import Candidate, Study
from tf_placer.search import methods
from tf_placer.search.spec import Kind, Role


def with_every_agent(study: Study) -> Study:
    """Every learned method of the table, then who is searched with beside them, then what the study has itself."""
    learned = [name for name in methods.names() if methods.find(name).kind == Kind.LEARNED]
    beside = [spec.name for role in (Role.CONTROL, Role.PLAIN, Role.BESIDE) for spec in methods.having(role)]
    candidates = [
        Candidate(name, name, settings=study.settings.get(name, {}))
        for name in dict.fromkeys([*learned, *beside])
    ]
    return dataclasses.replace(study, candidates=(*candidates, *study.candidates))
