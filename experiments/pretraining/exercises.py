"""Problems of a course as a student meets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.pretraining.course import Program
from tf_placer import workloads
from tf_placer.agents.student import Student
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.training.lessons import lesson_of
from tf_placer.user_cache import user_cache_folder

_SEARCHES, _EVALUATIONS = 2, 2000  # of each problem: what lessons are searched with


def exercises(student: Student, programs: Sequence[Program], show: Callable[[str], None]) -> list[Any]:
    """A lesson for each program on each of its machines; plans that were searched before are taken from the cache.

    Raises:
      InputError: a setting that a workload has not.
    """
    lessons = []
    for number, program in enumerate(programs):
        item = workloads.build(program.workload, **program.settings)
        for machine in program.machines:
            problem = analytic_problem(item, machine.build())
            folder = user_cache_folder() / "lessons"
            lesson, plans = lesson_of(student, problem, _SEARCHES, _EVALUATIONS, folder)
            lessons.append(lesson)
            found = "" if plans is None else f": {plans.runtime_s[0]:.4g} s"
            show(f"[{number + 1}/{len(programs)}] {program.name} on {problem.cluster.name}{found}")
    return lessons
