"""Good plans of problems, for policies to learn from: searched once, and kept."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from typing import Any

import numpy as np

from tf_placer.agents.student import Student
from tf_placer.array_file import array_file_bytes, read_array_file
from tf_placer.errors import InputError
from tf_placer.files import write_atomically
from tf_placer.grouper.groups import Groups
from tf_placer.method_spec import Role
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.search import search

SCHEMA_VERSION = 1
_KIND = "good plans of a tf_placer problem"


@dataclasses.dataclass(frozen=True, eq=False)
class Plans:
    """Plans that a search found for one problem.

    Attributes:
      device_of_unit: [K, U] int32, the fastest first.
      runtime_s: [K] float64, step times in the simulator.
    """

    device_of_unit: np.ndarray
    runtime_s: np.ndarray


def lesson_of(
    student: Student, problem: Problem, searches: int, evaluations: int, folder: pathlib.Path
) -> tuple[Any, Plans | None]:
    """A problem as a student meets it, with the plans that ``kept_plans`` finds for the student's groups, if any."""
    if not student.needs_plans:
        return student.meets(problem, None), None
    plans = kept_plans(problem, student.groups_of(problem), searches, evaluations, folder)
    return student.meets(problem, plans.device_of_unit), plans


def kept_plans(
    problem: Problem, group_of_unit: np.ndarray, searches: int, evaluations: int, folder: pathlib.Path
) -> Plans:
    """Good plans in which all units of a group are together; searched, or as an earlier call has found them.

    Args:
      problem: what is placed.
      group_of_unit: [U] int32, from 0 on.
      searches: K, with seeds from 0 on.
      evaluations: of each.
      folder: where they are kept, one file for each problem, grouping and budget.

    Raises:
      InputError: a file there is damaged.
      NothingFits: no plan fits.
    """
    spec = methods.the(Role.LEAD)
    groups = hashlib.sha256(group_of_unit.astype(np.int32).tobytes()).hexdigest()
    of = (problem.digest(), groups, spec.name, sorted(spec.versions.items()), searches, evaluations)
    path = folder / f"{hashlib.sha256(repr(of).encode()).hexdigest()[:16]}.npz"
    if path.is_file():
        return _read(path, problem)
    whole = Groups.of(problem, group_of_unit)
    coarse = whole.coarse_problem()
    found = [
        search(coarse, method=spec, budget_evaluations=evaluations, seed=seed) for seed in range(searches)
    ]
    found.sort(key=lambda one: one.runtime_s)
    plans = Plans(
        whole.expand(np.array([one.placement.device_of_unit for one in found])),
        np.array([one.runtime_s for one in found]),
    )
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"device_of_unit": plans.device_of_unit, "runtime_s": plans.runtime_s}
    write_atomically(path, array_file_bytes(_KIND, SCHEMA_VERSION, {"name": problem.name}, arrays))
    return plans


def _read(path: pathlib.Path, problem: Problem) -> Plans:
    _, arrays = read_array_file(path, _KIND, SCHEMA_VERSION, "delete it: it is searched anew")
    try:
        plans = Plans(arrays["device_of_unit"], arrays["runtime_s"])
        for row in plans.device_of_unit:
            problem.check_legal(row)
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it: it is searched anew") from error
    return plans
