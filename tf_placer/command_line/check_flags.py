"""Words of flags, and checks that need no TensorFlow, which takes seconds to load."""

from __future__ import annotations

import ast
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console
from absl import flags

from tf_placer import workloads
from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.file_kinds import check_kind
from tf_placer.base.files import check_writable
from tf_placer.cluster.cluster import (
    LOCAL,
    LOGICAL,
    Cluster,
    choose_cluster,
    limited,
    limits_of_texts,
    local_cores,
)
from tf_placer.cluster.cluster_file import preset_names
from tf_placer.command_line.help_text import called, one_of_text, plain_help
from tf_placer.command_line.scripts.script import Script
from tf_placer.fleet.address import FleetAddress, check_ray, check_reachable
from tf_placer.search import known
from tf_placer.search.known import TIME, Budget

FASTEST, METHOD = "fastest", "method"
WRITE = (FASTEST, METHOD)
OP, LAYER = "op", "layer"
PASSED_ON = "program"  # the flag of a script with arguments of its own: flags of ours end at the first word
BY = (OP, LAYER)


def check_together(
    *, plan: object, pins: object, complete_plan: bool, graph: object, respect_devices: object, costs: object
) -> None:
    """Refuses flags that contradict each other; each argument is what one of them has, false where it is not given.

    A profiled graph has no program to pin ops of, or to profile.

    Raises:
      InputError: names both.
    """
    if plan and pins:
        raise InputError("--plan and --pin are given; a plan pins what it names: edit it, or leave it away")
    asked = {"--pin": pins, "--plan": plan, "--respect_devices": respect_devices, "--costs": costs}
    for flag, value in asked.items():
        if graph and value:
            raise InputError(f"{flag} is given with --graph, which has no program; leave it away")
    if complete_plan and not plan:
        raise InputError("--complete_plan is given without --plan; say which plan to complete")


def check_runs_on(command: str, cluster: str, is_live: bool) -> None:
    """Raises InputError where a command that needs live devices is given a cluster that is only described."""
    if not is_live:
        raise InputError(f"cluster {cluster!r} is only described; {command} on --cluster=local")


def check_not_run_on(graph: object, cluster: str, is_live: bool) -> None:
    """Raises InputError where a profiled graph, which has nothing to run, is given with live devices."""
    if graph and is_live:
        raise InputError(
            f"--cluster={cluster} has live devices, and --graph has nothing to run on them; "
            "give a preset or a .toml file without addresses"
        )


# Presets of clusters, by name.


def cluster_names() -> tuple[str, ...]:
    """The described machines, and this one."""
    return (*preset_names(), LOCAL)


def list_clusters(console: rich.console.Console) -> list[dict[str, Any]]:
    """Prints the names; returns them with their devices. This machine is not probed for that: its devices are None."""
    for name in cluster_names():
        console.print(name)
    return [
        {"name": name, "devices": None if name == LOCAL else _devices(Cluster.preset(name))}
        for name in cluster_names()
    ]


def _devices(cluster: Cluster) -> list[dict[str, Any]]:
    shown = ("name", "type", "model", "memory_bytes")
    return [{key: getattr(device, key) for key in shown} for device in cluster.devices]


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
_RUN = "run"  # on live or logical devices
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
    for name in (*_FILES, "saved_model"):
        if _given(values, name):
            check_kind(name, pathlib.Path(values[name].value), f"--{name}={values[name].value}")
    _check_program(values)
    for name, what in _FILES.items():
        if _given(values, name):
            _check_file(f"--{name}={values[name].value}", pathlib.Path(values[name].value), what)
    _check_together(values)
    _check_fleet(values)
    _check_clusters(command, values)
    if "budget_evaluations" in values:
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


def _check_program(values: flags.FlagValues) -> None:
    if _given(values, PASSED_ON):
        _check_passed_on(values[PASSED_ON].value[0])
    if _given(values, "script"):
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


def _check_passed_on(script: str) -> None:
    """Raises InputError where a script to run is none, as far as its name and its first look tell."""
    said, path = f"--{PASSED_ON}={script}", pathlib.Path(script)
    if not path.is_file():
        why = "that is a folder" if path.is_dir() else "no such file"
        raise InputError(f"{said}: {why}; give a Python script: tf-placer run [--flag=value] SCRIPT.py ARGS")
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        raise InputError(f"{said} is no Python script ({error}); give one that python runs") from None


def _check_file(said: str, path: pathlib.Path, what: str) -> None:
    if path.is_dir():
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


def _check_fleet(values: flags.FlagValues) -> None:
    if not _given(values, "fleet"):
        return
    said = f"--fleet={values.fleet}"
    address = FleetAddress.parse(values.fleet)
    if values.cluster.partition(":")[0] != LOCAL:
        raise InputError(
            f"{said} measures on the devices of its machines, and --cluster={values.cluster} describes others; leave "
            "--cluster out, or give local:2, say"
        )
    given = {
        "--graph": _given(values, "graph"),
        "--op_library": _given(values, "op_library"),
        "--plan": _given(values, "plan") and not values.complete_plan,
        "--objective=memory": values.objective != TIME,
    }
    for other in (name for name, is_given in given.items() if is_given):
        raise InputError(f"{said} and {other} are given; leave one of them out")
    check_ray(said)
    check_reachable(address)


def _check_clusters(command: str, values: flags.FlagValues) -> None:
    """All but what this machine has: it is probed only when all else is right."""
    for flag in ("cluster", "clusters"):
        for text in _texts(values, flag):
            said = f"--{flag}={text}"
            local_cores(text, said)
            cluster = None if text.partition(":")[0] == LOCAL else choose_cluster(text, said)
            name, is_live = (text, True) if cluster is None else (cluster.name, cluster.is_live)
            is_logical = cluster is not None and cluster.kind == LOGICAL
            if command in _NEED_LIVE_DEVICES or (command == _RUN and not is_logical):
                check_runs_on(command, name, is_live)
            check_not_run_on(_given(values, "graph"), name, is_live)
            if cluster is not None and _given(values, "memory_limit"):
                limited(
                    cluster.devices, limits_of_texts("--memory_limit", values.memory_limit), "--memory_limit"
                )


def _texts(values: flags.FlagValues, name: str) -> list[str]:
    """Texts of a flag that takes one text or a list; none where it is not given."""
    if not _given(values, name):
        return []
    value = values[name].value
    return [value] if isinstance(value, str) else list(value)


# Command lines read into flags, or refused in one line that names the flag.

_ILLEGAL = re.compile(r"flag --(\w+)=(.*?): ", re.DOTALL)


def parse_flags(
    values: flags.FlagValues,
    argv: Sequence[str],
    required: Sequence[str] = (),
    word: str | None = None,
    one_of: Sequence[str] = (),
    example: str = "",
    implied: Mapping[str, tuple[str, str]] = {},
) -> None:
    """Reads what comes after ``argv[0]``.

    Args:
      values: the flags that there are.
      argv: what was typed, beginning with the command or the program.
      required: flags that must be given, or have a default.
      word: the flag that one word without dashes stands for; None where there must be none.
      one_of: flags of which exactly one must be given; empty where there are none.
      example: flags of a command line that works, told with all that is missing; "" for none.
      implied: flag -> another and the value that this one has where the first is given and it is not.

    Raises:
      InputError: a flag that there is not, one without a value or with one that is not possible, a word that is no
        flag, or required flags that are missing: all of them at once.
    """
    values.set_gnu_getopt(
        word != PASSED_ON
    )  # flags may come after a word, but for those of a script that is run
    try:
        rest = values(list(argv))[1:]
    except flags.UnrecognizedFlagError as error:
        raise InputError(
            f"{argv[0]} has no flag --{error.flagname}; {_nearest(error.flagname, values)}"
        ) from None
    except flags.IllegalFlagValueError as error:
        raise _illegal(values, str(error)) from None
    except flags.Error as error:
        raise InputError(f"{error}; write --flag=value") from None
    if rest:
        _take_words(values, argv[0], rest, word)
    for name in values:
        _check_given(values[name])
    for name, (other, value) in implied.items():
        if _given(values, name) and not values[other].value:
            values[other].value = value
    _check_needed(values, argv[0], required, word, one_of, example)


def _check_needed(
    values: flags.FlagValues,
    command: str,
    required: Sequence[str],
    word: str | None,
    one_of: Sequence[str],
    example: str,
) -> None:
    given = [f"--{name}" for name in one_of if values[name].value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are given; give one of them")
    missing = [one_of_text(one_of, word)] if one_of and not given else []
    missing += [
        f"--{name} ({plain_help(values[name]).rstrip('.')})" for name in required if not values[name].value
    ]
    if missing:
        such = f"; for example: {called(command, example)}" if example else ""
        raise InputError(f"{command} needs {', and '.join(missing)}{such}")


def _take_words(values: flags.FlagValues, command: str, rest: Sequence[str], word: str | None) -> None:
    """Sets the flag of a word without dashes."""
    if word is None:
        raise InputError(f"{command} takes flags only, got {rest[0]!r}; write --flag=value")
    if word == PASSED_ON and not values[word].present:
        values[word].parse(rest)
        return
    if len(rest) > 1:
        raise InputError(f"{command} takes one word beside flags, got {rest[1]!r} too; write --flag=value")
    if values[word].present:
        raise InputError(f"--{word} and {rest[0]!r}, which stands for it, are given; give one of them")
    try:
        values[word].parse(rest[0])
    except flags.IllegalFlagValueError as error:
        raise _illegal(values, str(error)) from None


def _check_given(flag: flags.Flag) -> None:
    if not flag.present:
        return
    if flag.value in ("", [], [""]):
        raise InputError(f"--{flag.name} is empty; give it a value, or leave it out ({plain_help(flag)})")
    if isinstance(flag.value, float) and math.isnan(flag.value):
        raise InputError(
            f"--{flag.name}=nan is no number; give {flag.parser.syntactic_help} ({plain_help(flag)})"
        )


def _illegal(values: flags.FlagValues, message: str) -> InputError:
    found = _ILLEGAL.match(message)
    if found is None or found[1] not in values:
        return InputError(f"{message}; write --flag=value")
    flag = values[found[1]]
    if isinstance(flag, flags.EnumFlag):
        wanted = f"one of {', '.join(flag.parser.enum_values)}"
    else:
        wanted = "true or false" if flag.boolean else flag.parser.syntactic_help
    return InputError(f"--{flag.name}={found[2]} is not possible; give {wanted} ({plain_help(flag)})")


def _nearest(name: str, values: flags.FlagValues) -> str:
    known = [f"--{one}" for one in values]
    return nearest(f"--{name}", known) if known else "it takes none"
