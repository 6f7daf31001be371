"""Teaches a policy on many problems and writes its weights."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any

import rich.console

from tf_placer import workloads
from tf_placer.agents.features import weights_bytes, weights_header
from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.files import check_writable, user_cache_folder, write_atomically
from tf_placer.base.quantities import known, milliseconds
from tf_placer.cluster.cluster import choose_cluster
from tf_placer.command_line.request import method_settings
from tf_placer.planning.forecast import compile_simulator, compiling
from tf_placer.planning.log import Log
from tf_placer.planning.request import Flags
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.search import methods
from tf_placer.search.methods import configured
from tf_placer.training.teach import Epoch, lesson_of, teach

_LESSONS, _TEACHING = "finding plans to learn from", "teaching"
# Rules for what was never done on this machine, from an idle one with two cores.
_BUILD_S, _TRY_S, _SHOW_S = 5.0, 1e-3, 0.5
_RECORDED = ("method", "workloads", "clusters", "held_out", "searches", "evaluations", "epochs", "seed")


def train(options: Flags, console: rich.console.Console) -> dict[str, Any]:
    """Finds good plans, teaches them, writes the weights, and returns method, epochs and file as JSON data.

    Plans are kept in the user's cache, and the training beside the weights: the same call continues a killed one.
    """
    spec, out = methods.find(options.method), pathlib.Path(options.out)
    settings = method_settings(options.set, None, [options.method]).get(options.method, {})
    if spec.student is None:
        taught = [name for name in methods.names() if methods.find(name).student is not None]
        raise InputError(f"method {spec.name!r} is not taught beforehand; {nearest(spec.name, taught)}")
    config = configured(spec, settings)
    clusters = [choose_cluster(name, f"--clusters={name}") for name in options.clusters]
    for name, cluster in zip(options.clusters, clusters, strict=True):
        if cluster.is_live:
            raise InputError(f"--clusters={name} is live; give clusters that are described, such as k40x2")
    if shared := sorted(set(options.workloads) & set(options.held_out)):
        raise InputError(f"{shared[0]!r} is taught and held out; give it in one of the two")
    if out.exists():
        try:
            weights_header(out)
        except InputError:
            raise InputError(f"--out={out} is there and holds no weights; give another file") from None
    check_writable(out.parent, f"--out={out}")
    student = spec.student(config, options.seed)

    def show(epoch: Epoch) -> None:
        held_out = "" if math.isnan(epoch.held_out) else f", {epoch.held_out:.3f} held out"
        line = f"epoch {epoch.number} of {options.epochs}: loss {epoch.loss:.3f}{held_out}"
        console.print(line, soft_wrap=True)

    # Earlier plans and trainings are continued, so the same call may take less.
    problems = (len(options.workloads) + len(options.held_out)) * len(clusters)
    tries = problems * options.searches * options.evaluations
    shown = options.epochs * len(options.workloads) * len(clusters)
    title = f"{options.method} of {', '.join(options.workloads)}"
    finding_s = problems * _BUILD_S + tries * _TRY_S
    with Log(console) as log:
        finding = log.expected(_LESSONS, finding_s, f"finding {tries} plans for {title}")
        teaching = log.expected(_TEACHING, shown * _SHOW_S, f"teaching {shown} times {title}")
        log.announce([*compiling(log), finding, teaching])
        compile_simulator(log)
        with log.phase(_LESSONS):
            lessons, folder = [], user_cache_folder() / "lessons"
            names = (*options.workloads, *options.held_out)
            for item, cluster in (
                (item, cluster) for item in map(workloads.build, names) for cluster in clusters
            ):
                problem = analytic_problem(item, cluster)
                lesson, plans = lesson_of(student, problem, options.searches, options.evaluations, folder)
                best = "" if plans is None else f": a plan of {milliseconds(plans.runtime_s[0])}"
                console.print(f"{item.name} on {cluster.name}{best}", soft_wrap=True)
                lessons.append(lesson)
            num_taught = len(options.workloads) * len(clusters)
        with log.phase(_TEACHING):
            history = teach(
                student,
                lessons[:num_taught],
                lessons[num_taught:],
                epochs=options.epochs,
                seed=options.seed,
                checkpoint=out.with_name(f"{out.name}.training"),
                show=show,
            )
    record = {name: getattr(options, name) for name in _RECORDED}
    record |= {"settings": dataclasses.asdict(config), "loss": history[-1].loss}
    write_atomically(out, weights_bytes(student.kind, student.policy, record))
    console.print(f"wrote {out}", soft_wrap=True)
    epochs = [{**dataclasses.asdict(epoch), "held_out": known(epoch.held_out)} for epoch in history]
    return {"method": options.method, "epochs": epochs, "files": [options.out]}
