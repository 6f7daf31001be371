"""Teaching of a policy on many problems, epoch by epoch, by plans that are searched once and kept."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes, read_array_file, reserved, write_atomically
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import DEVICES, FUSION, Groups, JointPlans
from tf_placer.planners.order import priorities
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.search import search

_SAVED_EVERY_S = 30.0
_SHORTEST = 0.05  # of the last steps, as a share of the first
SCHEMA_VERSION = 2
_KIND = "good plans of a tf_placer problem"
_TRIES_EACH = 50  # evaluations of devices for one of levels: clusters take long to merge


@dataclasses.dataclass(frozen=True, eq=False)
class Plans:
    """Plans that a search found for one problem."""

    device_of_unit: np.ndarray  # [K, U] int32, the fastest first
    runtime_s: np.ndarray  # [K] float64, step times in the simulator
    levels: np.ndarray  # [K, L, G] int32 of groups, in tasks beyond devices (``JointPlans``); L may be 0


class Student(Protocol):
    """A ``tf.Module`` with a policy for any problem, all of whose state is in variables.

        group_of_unit = student.groups_of(problem)  # for a search that finds plans of these groups, tasks and levels
        lesson = student.meets(problem, plans)
        loss = student.learn(lesson, tf.constant(1.0))

    Draws of a step depend on the seed and the count of steps alone: a student with restored
    variables continues as the saved one would have. ``review(lessons)`` is optional: it ends an epoch, in which each
    of the lessons was learned once.
    """

    policy: snt.Module  # what is taught
    kind: Any  # ``PolicyKind``
    # Of the plans to learn from, in the order of ``JointPlans``; () without plans.
    tasks: tuple[str, ...]
    levels: int  # K, of tasks beyond devices
    # [U] int32 from 0 on: units that the policy always places together; not called without tasks.
    groups_of: Callable[[Problem], np.ndarray]
    # A problem, with good plans if any are needed, as the policy sees it.
    meets: Callable[[Problem, Plans | None], Any]
    # Takes one step, of a rate (scalar float32) times the learning rate; returns the previous loss.
    learn: Callable[[Any, tf.Tensor], tf.Tensor]
    # Scalar float32 loss, for problems that are not taught: a mean -log p in nats, or the logarithm of a time.
    loss_of: Callable[[Any], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Once through all lessons."""

    number: int  # from 1 on
    loss: float  # the mean over lessons, of each before its step
    held_out: float  # the mean over problems that are not taught, after the epoch; nan without such


def teach(
    student: Student,
    lessons: Sequence[Any],
    held_out: Sequence[Any],
    epochs: int,
    seed: int,
    checkpoint: pathlib.Path,
    show: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Epoch]:
    """Shows a student each lesson once an epoch, in another order each time, with steps that become shorter.

    The same call continues where a killed one stopped, at the end of its last epoch that was saved in the folder
    ``checkpoint``. Lessons are what ``student.meets`` made of each problem, in the same order in each call, and
    ``held_out`` the same of problems that are never taught. Returns all epochs, with those of earlier calls.

    Raises:
      InputError: no lesson, or a folder that holds another training, is damaged, in use or cannot be written to.
    """
    if not lessons:
        raise InputError("there is no lesson; give at least one")
    last_epoch = arguments.whole_number("epochs", epochs, least=1)
    with reserved(checkpoint, f"checkpoint={checkpoint}"):
        identity = {"seed": seed, "lessons": len(lessons), "held_out": len(held_out)}
        saved = Checkpoint(checkpoint, identity, _SAVED_EVERY_S)
        saved.track(student, dataclasses.asdict(student.kind))
        history = [Epoch(*entry) for entry in (saved.recorder or {"history": []})["history"]]
        state = lambda: {"history": [list(dataclasses.astuple(epoch)) for epoch in history]}  # noqa: E731
        for number in range(len(history) + 1, last_epoch + 1):
            order = np.random.default_rng([seed, number]).permutation(len(lessons))
            # Half a cosine, from 1 on.
            share = 0.5 * (1 + math.cos(math.pi * (number - 1) / epochs))
            rate = tf.constant(_SHORTEST + (1 - _SHORTEST) * share)
            loss = float(np.mean([float(student.learn(lessons[place], rate)) for place in order]))
            if hasattr(student, "review"):
                student.review(lessons)
            unseen = [float(student.loss_of(lesson)) for lesson in held_out]
            history.append(Epoch(number, loss, float(np.mean(unseen)) if unseen else math.nan))
            saved.save(number, state, last=number == last_epoch)
            show(history[-1])
    return history


def lesson_of(
    student: Student, problem: Problem, searches: int, evaluations: int, folder: pathlib.Path
) -> tuple[Any, Plans | None]:
    """A problem as a lesson of a student, with the plans of ``kept_plans`` for the student's groups, if any."""
    if not student.tasks:
        return student.meets(problem, None), None
    groups = student.groups_of(problem)
    plans = kept_plans(problem, groups, searches, evaluations, folder, student.tasks, student.levels)
    return student.meets(problem, plans), plans


def kept_plans(
    problem: Problem,
    group_of_unit: np.ndarray,
    searches: int,
    evaluations: int,
    folder: pathlib.Path,
    tasks: tuple[str, ...] = (DEVICES,),
    levels: int = 2,
) -> Plans:
    """Good plans in which all units of a group are together; searched, or found by an earlier call.

    K ``searches`` of devices, with seeds from 0 on and so many evaluations each, and of levels for them
    (``improved_levels``) in a fiftieth as many. The folder has a file for each problem, grouping and budget.

    Raises:
      InputError: a file there is damaged, or there is nothing to be fused where fusion is a task.
      NothingFits: no plan fits.
    """
    spec = methods.find(methods.LEAD)
    groups = hashlib.sha256(group_of_unit.astype(np.int32).tobytes()).hexdigest()
    versions, tries_of_levels = sorted(spec.versions.items()), max(1, evaluations // _TRIES_EACH)
    key: tuple[object, ...] = (
        *(SCHEMA_VERSION, problem.digest(), groups, spec.name, versions, searches, evaluations),
        *(() if tasks == (DEVICES,) else (tasks, levels, tries_of_levels)),
    )
    path = folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.npz"
    if path.is_file():
        _, arrays = read_array_file(path, _KIND, SCHEMA_VERSION, "delete it: it is searched anew")
        try:
            plans = Plans(arrays["device_of_unit"], arrays["runtime_s"], arrays["levels"])
            for row in plans.device_of_unit:
                problem.check_legal(row)
        except (KeyError, ValueError) as error:
            raise InputError(f"{path} is damaged ({error}); delete it: it is searched anew") from error
        return plans
    whole = Groups.of(problem, group_of_unit)
    coarse = whole.coarse_problem()
    results = [
        search(coarse, method=spec, budget_evaluations=evaluations, seed=seed) for seed in range(searches)
    ]
    rows = whole.expand(np.array([result.placement.device_of_unit for result in results]))
    joint = JointPlans(whole, tasks, levels)
    of_row, runtime_s = [joint.neutral] * len(results), [result.runtime_s for result in results]
    if joint.leveled:
        improved = [improved_levels(joint, row, tries_of_levels, seed) for seed, row in enumerate(rows)]
        of_row, runtime_s = (list(result) for result in zip(*improved, strict=True))
    order = np.argsort(runtime_s, kind="stable")
    plans = Plans(rows[order], np.array(runtime_s)[order], np.array(of_row)[order])
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(plans, name) for name in ("device_of_unit", "runtime_s", "levels")}
    write_atomically(path, array_file_bytes(_KIND, SCHEMA_VERSION, {"name": problem.name}, arrays))
    return plans


def improved_levels(
    joint: JointPlans, device_of_unit: np.ndarray, evaluations: int, seed: int
) -> tuple[np.ndarray, float]:
    """Levels [L, G] int32 for a placement [U], and the plan's step time in seconds, in the simulator.

    Begins with the best of what rules say: no order or HEFT's, nothing fused or all that can be.
    Then a group's level in a task is changed, and stays changed where the step is shorter, until
    so many plans are simulated, those of rules among them.
    """
    evaluator, generator = SimulatedEvaluator(joint.groups.problem), np.random.default_rng(seed)

    def seconds(levels: np.ndarray) -> float:
        measured = evaluator.evaluate(joint.decisions(device_of_unit[np.newaxis], levels[np.newaxis]))
        return float(np.nan_to_num(measured.runtime_s[0], nan=math.inf))

    groups, rules = joint.groups, []
    for task, neutral, legal in zip(joint.leveled, joint.neutral, joint.legal, strict=True):
        if task == FUSION:
            rules.append([neutral, legal[:, 1].astype(np.int32)])
        else:
            rank = priorities("heft_rank", groups.problem, device_of_unit)
            group_of_op = groups.group_of_unit[groups.problem.unit_of_op]
            ops = np.maximum(np.bincount(group_of_op, minlength=groups.count), 1)
            mean = np.bincount(group_of_op, rank, groups.count) / ops
            place = np.argsort(np.argsort(mean, kind="stable"))
            rules.append([neutral, (place * joint.levels // groups.count).astype(np.int32)])
    begins = [np.array(levels) for levels in itertools.product(*rules)][:evaluations]
    times_s = [seconds(levels) for levels in begins]
    best_s, best = min(times_s), begins[int(np.argmin(times_s))]
    task_of, group_of, level_of = np.nonzero(joint.legal)
    for pick in generator.integers(len(task_of), size=evaluations - len(begins)):
        changed = best.copy()
        changed[task_of[pick], group_of[pick]] = level_of[pick]
        if (changed_s := seconds(changed)) < best_s:
            best, best_s = changed, changed_s
    return best.astype(np.int32), best_s
