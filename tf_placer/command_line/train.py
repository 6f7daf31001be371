"""Teaches a policy on many problems and writes its weights."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console

from tf_placer import workloads
from tf_placer.agents.weights import Student, check_weights_file, weights_bytes
from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.files import check_writable, write_atomically
from tf_placer.base.quantities import milliseconds
from tf_placer.base.store import user_cache_folder
from tf_placer.cluster.cluster import Cluster, choose_cluster
from tf_placer.planning.road import compiling
from tf_placer.planning.stages import Stages
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.search import methods
from tf_placer.search.methods import configured, recorded
from tf_placer.training.teach import Epoch, lesson_of, teach

_LESSONS, _TEACHING = "finding plans to learn from", "teaching"
# Rules for what was never done on this machine, from an idle one with two cores.
_BUILD_S, _TRY_S, _SHOW_S = 5.0, 1e-3, 0.5


@dataclasses.dataclass(frozen=True)
class Training:
    """Training plan: method, lessons, and number of epochs."""

    method: str  # whose policy
    settings: Mapping[str, Any]  # of the method, by name
    # Each workload is taught on each cluster.
    workloads: tuple[str, ...]
    clusters: tuple[str, ...]
    held_out: tuple[str, ...]  # workloads that are not taught, on the same clusters: their loss is told
    # What a lesson's plans are found with.
    searches: int
    evaluations: int
    epochs: int  # how often each lesson is shown
    seed: int  # fixes everything random


def train(training: Training, out: pathlib.Path, console: rich.console.Console) -> list[Epoch]:
    """Finds good plans, teaches them, and writes the weights.

    Plans are kept in the user's cache, and the training beside ``out``: the same call goes on where a killed one was.

    Args:
      training: what to teach.
      out: file to write.
      console: is told of each problem and each epoch.

    Returns:
      The epochs.

    Raises:
      InputError: a method that is not taught beforehand, an unknown workload or cluster, one that is live, the same
        workload taught and held out, a file that cannot be written or is no file of weights, or one beside it of
        another training.
    """
    spec = methods.find(training.method)
    if spec.student is None:
        taught = [name for name in methods.names() if methods.find(name).student is not None]
        raise InputError(f"method {spec.name!r} is not taught beforehand; {nearest(spec.name, taught)}")
    config = configured(spec, training.settings)
    clusters = [_described(name) for name in training.clusters]
    if shared := sorted(set(training.workloads) & set(training.held_out)):
        raise InputError(f"{shared[0]!r} is taught and held out; give it in one of the two")
    if out.exists():
        try:
            check_weights_file(out)
        except InputError:
            raise InputError(f"--out={out} is there and holds no weights; give another file") from None
    check_writable(out.parent, f"--out={out}")
    student = spec.student(config, training.seed)
    lessons: dict[bool, list[Any]] = {}  # whether they are held out -> them
    history: list[Epoch] = []

    def find(_: float) -> None:
        for is_held_out, names in enumerate((training.workloads, training.held_out)):
            lessons[bool(is_held_out)] = _lessons(student, names, clusters, training, console)

    def show(epoch: Epoch) -> None:
        held_out = "" if math.isnan(epoch.held_out) else f", {epoch.held_out:.3f} held out"
        line = f"epoch {epoch.number} of {training.epochs}: loss {epoch.loss:.3f}{held_out}"
        console.print(line, soft_wrap=True)

    def teach_all(_: float) -> None:
        history.extend(
            teach(
                student,
                lessons[False],
                lessons[True],
                epochs=training.epochs,
                seed=training.seed,
                checkpoint=out.with_name(f"{out.name}.training"),
                show=show,
            )
        )

    # Plans and trainings of before are gone on with, so the same call may take less.
    problems = (len(training.workloads) + len(training.held_out)) * len(clusters)
    tries = problems * training.searches * training.evaluations
    shown = training.epochs * len(training.workloads) * len(clusters)
    title = f"{training.method} of {', '.join(training.workloads)}"
    stages = Stages(console)
    finding_s, teaching_s = problems * _BUILD_S + tries * _TRY_S, shown * _SHOW_S
    stages.run(
        [
            *compiling(stages),
            stages.kept(_LESSONS, find, finding_s, f"finding {tries} plans for {title}"),
            stages.kept(_TEACHING, teach_all, teaching_s, f"teaching {shown} times {title}"),
        ]
    )
    record = {**dataclasses.asdict(training), "settings": recorded(config), "loss": history[-1].loss}
    write_atomically(out, weights_bytes(student.kind, student.policy, record))
    console.print(f"wrote {out}", soft_wrap=True)
    return history


def _described(name: str) -> Cluster:
    cluster = choose_cluster(name, f"--clusters={name}")
    if cluster.is_live:
        raise InputError(f"--clusters={name} is live; give clusters that are described, such as k40x2")
    return cluster


def _lessons(
    student: Student,
    names: Sequence[str],
    clusters: Sequence[Cluster],
    training: Training,
    console: rich.console.Console,
) -> list[Any]:
    """Each workload on each cluster, with its plans."""
    lessons = []
    for name in names:
        item = workloads.build(name)
        for cluster in clusters:
            problem = analytic_problem(item, cluster)
            folder = user_cache_folder() / "lessons"
            lesson, plans = lesson_of(student, problem, training.searches, training.evaluations, folder)
            lessons.append(lesson)
            best = "" if plans is None else f": a plan of {milliseconds(plans.runtime_s[0])}"
            console.print(f"{name} on {cluster.name}{best}", soft_wrap=True)
    return lessons
