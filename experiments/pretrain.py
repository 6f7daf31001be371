"""Teaches a policy on the course, so that it knows something before a search begins.

    python -m experiments.pretrain --out=weights.npz [--method=go] [--tasks=devices,priorities,fusion] [--quick]
        [--course=workloads,generated:600] [--leave_out=gnmt,wavenet] [--machines=1]

The course (``experiments/pretraining/course.toml``) has programs of many families, each on machines that ``--seed``
draws. With ``--course=generated`` the programs are drawn, too, of families that no table has: the estimate of the first
run is told at its start, about two hours of a core, and it writes a digest of each program to a file beside the course,
which later runs are checked by. Good plans are searched first, once, and kept in the user's cache; then the policy is
taught to make them. The same command goes on where a killed one was. With ``--leave_out`` the loss on those families is
told, too: the policy is not taught them.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import rich.console
from absl import flags

from experiments.main_program import out_flag, run_program, seed_flag
from experiments.pretraining.course import (
    FOLDER,
    WORKLOADS,
    Generated,
    Program,
    check_digest,
    course_named,
    draw,
    seconds,
    without,
)
from experiments.pretraining.random_networks import build
from tf_placer import workloads
from tf_placer.agents.features import weights_bytes
from tf_placer.base.arguments import InputError
from tf_placer.base.files import user_cache_folder, write_atomically
from tf_placer.graph.item import Item
from tf_placer.grouper.groups import DEVICES, TASKS
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.search import methods
from tf_placer.search.methods import configured
from tf_placer.search.search import NothingFits
from tf_placer.training.teach import Epoch, Student, lesson_of, teach

_METHOD = flags.DEFINE_string("method", "go", "Whose policy.")
_OUT = out_flag(None, "File of weights to write; the training is kept beside it.")
_COURSE = flags.DEFINE_string("course", WORKLOADS, "workloads, generated[:COUNT], or both by a comma.")
_LEAVE_OUT = flags.DEFINE_list("leave_out", [], "Families of the course that are not taught.")
_TASKS = flags.DEFINE_enum(
    "tasks", DEVICES, TASKS, "What GO's policy decides; other policies decide devices."
)
_MACHINES = flags.DEFINE_integer(
    "machines", None, "On how many machines each program is taught; the course says how many without it.", 1
)
_EPOCHS = flags.DEFINE_integer("epochs", 200, "How often each problem is shown.", lower_bound=1)
_SEED = seed_flag()
_SEARCHES, _EVALUATIONS = 2, 2000  # of each problem: the searches that lessons are made of
flags.DEFINE_bool("quick", False, "A small program of each of two families, two epochs: to see it work.")


def main() -> None:
    if _OUT.value is None:
        raise InputError("--out is missing; give the file to write")
    spec = methods.find(_METHOD.value)
    if spec.student is None:
        remedy = "give go, learned_list or mars"
        raise InputError(f"--method={spec.name}: its policy is not taught beforehand; {remedy}")
    course, epochs = course_named(_COURSE.value, _SEED.value), _EPOCHS.value
    if _MACHINES.value is not None:
        most = min(len(program.machines) for program in course)
        if _MACHINES.value > most:
            raise InputError(f"--machines={_MACHINES.value}: the course draws {most}; give at most as many")
        course = tuple(
            dataclasses.replace(program, machines=program.machines[: _MACHINES.value]) for program in course
        )
    if flags.FLAGS.quick:
        # The plainest program on one machine, and one of another family; of drawn programs the smallest two.
        drawn = sorted((p for p in course if isinstance(p, Generated)), key=lambda program: -program.ops)
        small = sorted({p.family: p for p in drawn}.values(), key=lambda program: program.ops)
        first = {program.family: program for program in course if not program.settings}
        pair: Sequence[Program] = small[:2] or [first[family] for family in ("plain", "rnnlm")]
        course = tuple(dataclasses.replace(program, machines=program.machines[:1]) for program in pair)
        epochs = 2
    taught = without(course, _LEAVE_OUT.value)
    console, began_s = rich.console.Console(highlight=False), time.monotonic()

    def show(line: str) -> None:
        console.print(f"{time.monotonic() - began_s:6.0f} s  {line}", soft_wrap=True)

    def show_epoch(epoch: Epoch) -> None:
        held_out = "" if math.isnan(epoch.held_out) else f", {epoch.held_out:.3f} on what is left out"
        show(f"epoch {epoch.number} of {epochs}: loss {epoch.loss:.3f}{held_out}")

    if _COURSE.value != WORKLOADS:
        hours = seconds(course, _SEARCHES * _EVALUATIONS) / 3600
        show(f"{len(course)} programs, about {hours:.1g} hours of a core without plans that are kept")
    settings = {"weights": ""} if _TASKS.value == DEVICES else {"weights": "", "tasks": _TASKS.value}
    config = configured(spec, settings)
    student = spec.student(config, _SEED.value)
    lessons = _exercises(student, taught, show)
    unseen = _exercises(student, [program for program in course if program not in taught], show)
    out = pathlib.Path(_OUT.value)
    folder = out.with_name(f"{out.name}.training")
    history = teach(student, lessons, unseen, epochs, _SEED.value, folder, show_epoch)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    told = {
        "command": shlex.join(["python", "-m", "experiments.pretrain", *sys.argv[1:]]),
        "commit": commit.stdout.strip() or "unknown",  # where the sources are no checkout
        "seed": _SEED.value,
        "settings": dataclasses.asdict(config),
        "problems": len(lessons),
        "loss": history[-1].loss,
    }
    write_atomically(out, weights_bytes(student.kind, student.policy, told))
    show(f"wrote {out}")


def _exercises(student: Student, programs: Sequence[Program], show: Callable[[str], None]) -> list[Any]:
    """A lesson for each program on each of its machines; plans that were searched before are taken from the cache.

    Raises:
      InputError: a setting that a workload has not, or a drawn program is not the one of its digest.
    """
    lessons, folder = [], user_cache_folder() / "lessons"
    for number, program in enumerate(programs):
        item = _item(program)
        for machine in program.machines:
            problem = analytic_problem(item, machine.build())
            where = f"[{number + 1}/{len(programs)}] {program.name} on {problem.cluster.name}"
            try:
                lesson, plans = lesson_of(student, problem, _SEARCHES, _EVALUATIONS, folder)
            except NothingFits as error:
                show(f"{where} is left out: {error}")
                continue
            lessons.append(lesson)
            found = "" if plans is None else f": {plans.runtime_s[0]:.4g} s"
            show(f"{where}{found}")
        gc.collect()  # a traced step is a ring of references, and many large ones do not fit side by side
    return lessons


def _item(program: Program) -> Item:
    if not isinstance(program, Generated):
        return workloads.build(program.workload, **program.settings)
    item = build(program.family, **program.settings)
    drawn = draw(program.number, _SEED.value)  # with all its machines
    check_digest(drawn, item.index.num_ops, item.fingerprint, FOLDER / f"generated_{_SEED.value}.csv")
    return item


if __name__ == "__main__":
    run_program(main)
