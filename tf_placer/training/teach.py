"""Teaching of a policy on many problems, epoch by epoch; resumes where it was stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.agents.weights import Student
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes, read_array_file, reserved, write_atomically
from tf_placer.base.method_spec import Role
from tf_placer.grouper.groups import Groups
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.search import search

_SAVED_EVERY_S = 30.0
_SHORTEST = 0.05  # of the last steps, as a share of the first


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Once through all lessons.

    Attributes:
      number: from 1 on.
      loss: the mean of what the student says of each lesson before its step.
      held_out: the same over problems that are not taught, after the epoch; nan without such.
    """

    number: int
    loss: float
    held_out: float


def teach(
    student: Student,
    lessons: Sequence[Any],
    held_out: Sequence[Any],
    epochs: int,
    seed: int,
    checkpoint: pathlib.Path,
    show: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Epoch]:
    """Shows a student each lesson once in an epoch, in another order each time, with steps that become shorter.

    The same call goes on where a killed one was, at the end of its last whole epoch that is kept.

    Args:
      student: is changed.
      lessons: what ``student.meets`` made of each problem, in an order that is the same in each call.
      held_out: as many as there are, never taught.
      epochs: in all, those of earlier calls included; steps become shorter over all of them, down to a twentieth.
      seed: of the order.
      checkpoint: folder of this one training, made if need be.
      show: is given each epoch when it ends.

    Returns:
      All epochs, those of earlier calls included.

    Raises:
      InputError: no lesson, or a folder that holds another training, is damaged, in use or cannot be written to.
    """
    if not lessons:
        raise InputError("there is no lesson; give at least one")
    last = arguments.whole_number("epochs", epochs, least=1)
    with reserved(checkpoint, f"checkpoint={checkpoint}"):
        identity = {"seed": seed, "lessons": len(lessons), "held_out": len(held_out)}
        kept = Checkpoint(checkpoint, identity, _SAVED_EVERY_S)
        kept.track(student, dataclasses.asdict(student.kind))
        history = [Epoch(*entry) for entry in (kept.recorder or {"history": []})["history"]]
        for number in range(len(history) + 1, last + 1):
            order = np.random.default_rng([seed, number]).permutation(len(lessons))
            rate = tf.constant(_step_length((number - 1) / epochs))
            loss = float(np.mean([float(student.learn(lessons[place], rate)) for place in order]))
            unseen = [float(student.loss_of(lesson)) for lesson in held_out]
            history.append(Epoch(number, loss, float(np.mean(unseen)) if unseen else math.nan))
            kept.save(
                number,
                lambda: {"history": [list(dataclasses.astuple(epoch)) for epoch in history]},
                last=number == last,
            )
            show(history[-1])
    return history


def _step_length(share: float) -> float:
    """Step length of an epoch that begins after that share of all of them: half a cosine, from 1 on."""
    return _SHORTEST + (1 - _SHORTEST) * 0.5 * (1 + math.cos(math.pi * share))


# Good plans of problems, for policies to learn from: searched once, and kept.

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
