"""Flags of a command checked for all that can be told without TensorFlow, which takes seconds to load."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence

from absl import flags

from tf_placer import workloads
from tf_placer.cluster.choose import LOCAL, choose_cluster, local_cores
from tf_placer.cluster.memory_limit import limited, limits_of_texts
from tf_placer.command_line.choices import check_not_run_on, check_runs_on, check_together
from tf_placer.command_line.remedies import check_script
from tf_placer.command_line.scripts.script import Script
from tf_placer.errors import InputError
from tf_placer.folders import check_writable
from tf_placer.search import known
from tf_placer.search.budget import Budget

NEEDS_A_PROGRAM = (
    "needs a program, and a graph that was profiled elsewhere has none behind it; give --workload, a script, "
    "--saved_model or --meta_graph (place and compare take --graph)"
)
# Flags that name a file which is read, and what that is.
_FILES = {
    "meta_graph": "the file of a MetaGraphDef or GraphDef",
    "graph": "the file of a profiled graph",
    "plan": "the placement.json of a run",
    "placement": "the placement.json of a run",
    "settings": "a TOML file of settings",
    "weights": "one that `train` wrote",
}
_NEED_LIVE_DEVICES = ("measure", "profile")
_FOLDERS = ("out", "tensorboard")


def check_flags(command: str, values: flags.FlagValues) -> None:
    """Refuses what cannot be, as far as names, numbers and files tell.

    Args:
      command: its name, for messages.
      values: parsed.

    Raises:
      InputError: names the flag and the remedy.
    """
    _check_names(values)
    _check_program(command, values)
    for name, what in _FILES.items():
        if _given(values, name):
            _check_file(f"--{name}={values[name].value}", pathlib.Path(values[name].value), what)
    _check_together(values)
    _check_clusters(command, values)
    if "budget_s" in values:
        seconds, evaluations = values.budget_s, values.budget_evaluations
        if seconds is not None or evaluations is not None:
            Budget(math.inf if seconds is None else seconds, evaluations)
    for name in _FOLDERS:
        if _given(values, name) and command != "train":  # whose --out is a file
            check_writable(pathlib.Path(values[name].value), f"--{name}={values[name].value}")


def refuse_graph(command: str, values: flags.FlagValues, argv: Sequence[str]) -> None:
    """Raises InputError where a command that needs a program is given a graph that has none behind it."""
    given = any(text.lstrip("-").partition("=")[0] == "graph" for text in argv if text.startswith("-"))
    if given and "workload" in values and "graph" not in values:
        raise InputError(f"{command} {NEEDS_A_PROGRAM}")


def _given(values: flags.FlagValues, name: str) -> bool:
    return name in values and bool(values[name].value)


def _check_names(values: flags.FlagValues) -> None:
    for flag in ("method", "methods"):
        for name in _texts(values, flag):
            known.check_name(name)
    for flag in ("workload", "workloads", "held_out"):
        for name in _texts(values, flag):
            workloads.check_name(name)


def _check_program(command: str, values: flags.FlagValues) -> None:
    if _given(values, "script"):
        check_script(command, values.script)
        Script.named(values.script).check_found()
    if _given(values, "args") and not _given(values, "script"):
        raise InputError(
            f"--args={values.args} is given without a script; give FILE.py:NAME, or leave it out"
        )
    if _given(values, "saved_model") and not pathlib.Path(values.saved_model).exists():
        file = pathlib.Path(values.saved_model) / "saved_model.pb"
        raise InputError(f"cannot read {file}: No such file or directory; give the folder of a SavedModel")
    if _given(values, "meta_graph") and not _given(values, "fetches"):
        raise InputError(
            "--meta_graph needs --fetches: what to compute, for example --fetches=loss:0,train_op"
        )


def _check_file(said: str, path: pathlib.Path, what: str) -> None:
    if path.is_dir():
        holds = any((path / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt"))
        if holds and said.startswith("--meta_graph="):
            raise InputError(f"{said}: it is the folder of a SavedModel; give --saved_model={path}")
        raise InputError(f"{said}: that is a folder; give {what}")
    if not path.exists():
        raise InputError(f"{said}: no such file; give {what}")


def _check_together(values: flags.FlagValues) -> None:
    if "pin" not in values:
        return
    check_together(
        plan="plan" in values and values.plan,
        pins=values.pin,
        complete_plan="complete_plan" in values and values.complete_plan,
        graph=values.graph,
        respect_devices=values.respect_devices,
        costs=values.costs,
    )


def _check_clusters(command: str, values: flags.FlagValues) -> None:
    """All but what this machine has: it is probed only when all else is right."""
    for flag in ("cluster", "clusters"):
        for text in _texts(values, flag):
            said = f"--{flag}={text}"
            local_cores(text, said)
            cluster = None if text.partition(":")[0] == LOCAL else choose_cluster(text, said)
            name, is_live = (text, True) if cluster is None else (cluster.name, cluster.is_live)
            if command in _NEED_LIVE_DEVICES:
                check_runs_on(command, name, is_live)
            check_not_run_on(_given(values, "graph"), name, is_live)
            if cluster is not None and _given(values, "memory_limit"):
                limited(
                    cluster.devices, limits_of_texts("--memory_limit", values.memory_limit), "--memory_limit"
                )


def _texts(values: flags.FlagValues, name: str) -> list[str]:
    """Of a flag that takes one text or a list; none where it is not given."""
    if not _given(values, name):
        return []
    value = values[name].value
    return [value] if isinstance(value, str) else list(value)
