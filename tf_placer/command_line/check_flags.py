"""Flags of the commands, made from ``Options``: parsing, checks that need no TensorFlow, help and completion."""

from __future__ import annotations

import ast
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console
from absl import flags

from tf_placer import workloads
from tf_placer.base.arguments import InputError, fit, nearest
from tf_placer.base.file_kinds import check_kind
from tf_placer.base.files import check_writable, kinds
from tf_placer.cluster.cluster import (
    LOCAL,
    LOGICAL,
    Cluster,
    choose_cluster,
    limited,
    limits_of_texts,
    local_cores,
    preset_names,
)
from tf_placer.command_line.script import Script
from tf_placer.fleet.address import FleetAddress, check_ray, check_reachable
from tf_placer.planning.request import (
    ALL,
    COMMANDS,
    EXAMPLES,
    GROUP_OF,
    PASSED_ON,
    REPEATED,
    SHELLS,
    Flags,
    Texts,
    check_together,
    kind_of,
    options_of,
)
from tf_placer.search import methods

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
    PASSED_ON: "a Python script: tf-placer run [--flag=value] SCRIPT.py ARGS",
}
_WIDTH, _COLUMN = 110, 26  # of help
_NEED_LIVE_DEVICES = ("measure", "profile")


def list_clusters(console: rich.console.Console) -> list[dict[str, Any]]:
    """Prints a line for each; returns them with their devices, None for this machine, which is not probed."""
    keys, clusters = ("name", "type", "model", "memory_bytes"), list[dict[str, Any]]()
    for name in preset_names():
        devices, rate = (cluster := Cluster.preset(name)).devices, cluster.link_bytes_per_s()[0, 1] / 1e9
        gpus = f"{len(devices) - 1} x {devices[0].model}, {devices[0].memory_bytes / 1e9:.0f} GB each"
        console.print(f"{name:<15}{gpus}, {rate:.0f} GB/s to the next", soft_wrap=True)
        rows = [{key: getattr(device, key) for key in keys} for device in devices]
        clusters.append({"name": name, "devices": rows})
    console.print(f"{LOCAL:<15}this machine's GPUs; without GPUs a worker for each CPU core", soft_wrap=True)
    clusters.append({"name": LOCAL, "devices": None})
    return clusters


def read_flags(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Reads what comes after ``argv[0]``, the command or the program, and returns the words without dashes."""
    try:
        words = values(list(argv))[1:]
    except flags.UnrecognizedFlagError as error:
        if error.flagname == "graph" and "workload" in values:
            raise InputError(f"{argv[0]} {NEEDS_A_PROGRAM}") from None
        remedy = nearest(f"--{error.flagname}", [f"--{name}" for name in values])
        raise InputError(f"{argv[0]} has no flag --{error.flagname}; {remedy}") from None
    except flags.Error as error:
        raise InputError(f"{' '.join(str(error).split())}; write --flag=value") from None
    for flag in (values[name] for name in values if values[name].present):
        if flag.value in ("", [], [""]) or flag.value != flag.value:  # nan
            raise InputError(f"--{flag.name} is empty; give a value, or leave it out ({flag.help})")
    return words


def flag_value(name: str, text: str | Sequence[str]) -> Any:
    """Value of a command's flag; raises InputError for an impossible one."""
    kind = kind_of(name)
    if name == "clear" and text == "true":  # it stood without a value
        return ALL
    if name == PASSED_ON:  # a script's arguments may be empty
        return tuple(text)
    if kind == Texts and isinstance(text, str):
        text = [word.strip() for word in text.split(",")]
    return fit(kind, text, f"--{name}", "text")


def parse(command: str, argv: Sequence[str]) -> Flags:
    """Reads the flags of a command; ``argv`` is the command as typed, with all that follows."""
    about, defined = COMMANDS[command], flags.FlagValues()
    options = {option.name: option.metadata for option in options_of(command)}
    for name, option in options.items():
        flag_type = flags.MultiFlag if name in REPEATED else flags.Flag
        is_bare = kind_of(name) is bool or name == "clear"
        flag = flag_type(flags.ArgumentParser(), None, name, None, option["about"], boolean=is_bare)
        flags.DEFINE_flag(flag, defined)
    # Flags may come after a word, but for those of a script that is run.
    defined.set_gnu_getopt(about.word != PASSED_ON)
    words = read_flags(defined, argv)
    texts = {name: defined[name].value for name in options if defined[name].present}
    if words:
        if about.word is None:
            raise InputError(f"{command} takes flags only, got {words[0]!r}; write --flag=value")
        if len(words) > 1 and about.word != PASSED_ON:
            refusal = f"takes one word beside flags, got {words[1]!r} too"
            raise InputError(f"{command} {refusal}; write --flag=value")
        if about.word in texts:
            clash = f"--{about.word} and {words[0]!r}, which stands for it,"
            raise InputError(f"{clash} are given; give one of them")
        texts[about.word] = words if about.word == PASSED_ON else words[0]
    values = {name: option["default_of"][command] for name, option in options.items()}
    values |= {name: flag_value(name, text) for name, text in texts.items()}
    if values.get("fleet") and not values["cluster"]:
        values["cluster"] = LOCAL
    given = [f"--{name}" for name in about.one_of if values[name]]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are given; give one of them")
    missing = [one_of_text(command)] if about.one_of and not given else []
    needed = [name for name in about.required if not values[name]]
    missing += [f"--{name} ({options[name]['about'].rstrip('.')})" for name in needed]
    if missing:
        example = f"for example: tf-placer {command} {EXAMPLES[command]}"
        raise InputError(f"{command} needs {', and '.join(missing)}; {example}")
    return Flags(**values, command=command, typed=frozenset(texts))


def check_flags(options: Flags) -> None:
    """Refuses what cannot be, as far as names, numbers and files tell."""
    command, values = options.command, options.values()
    for check, names in (
        (methods.check_name, ("method", "methods")),
        (workloads.check_name, ("workload", "workloads", "held_out")),
    ):
        for value in (values[name] for name in names if name in values):
            for text in [value] if isinstance(value, str) else value:
                check(text)
    files = {name: values[name] for name in (*_FILES, "saved_model") if name in values}
    for name, file in files.items():
        path = pathlib.Path(file[0] if name == PASSED_ON else file)
        flag_text = f"--{name}={path}"
        if name != PASSED_ON:
            check_kind(name, path, flag_text)
        if name == "saved_model" and not path.exists():
            file = path / "saved_model.pb"
            raise InputError(
                f"cannot read {file}: No such file or directory; give the folder of a SavedModel"
            )
        if name != "saved_model" and not path.is_file():
            why = "that is a folder" if path.is_dir() else "no such file"
            raise InputError(f"{flag_text}: {why}; give {_FILES[name]}")
        if name == PASSED_ON:
            try:
                ast.parse(path.read_bytes())
            except (SyntaxError, ValueError, OSError) as error:
                raise InputError(
                    f"{flag_text} is no Python script ({error}); give one that python runs"
                ) from None
    if options.script:
        Script.named(options.script)  # raises where it is not there
    check_together(values.get, "--")
    if options.fleet:
        flag_text = f"--fleet={options.fleet}"
        address = FleetAddress.parse(options.fleet)
        if options.cluster.partition(":")[0] != LOCAL:
            raise InputError(
                f"{flag_text} measures on the devices of its machines, and --cluster={options.cluster} describes "
                "others; leave --cluster out, or give local:2, say"
            )
        check_ray(flag_text)
        check_reachable(address)
    clusters = [("cluster", options.cluster)] if options.cluster else []
    for flag, text in [*clusters, *(("clusters", text) for text in options.clusters)]:
        # All but this machine, which is probed only when all else is right.
        flag_text = f"--{flag}={text}"
        local_cores(text, flag_text)
        cluster = None if text.partition(":")[0] == LOCAL else choose_cluster(text, flag_text)
        name, is_live = (text, True) if cluster is None else (cluster.name, cluster.is_live)
        is_logical = cluster is not None and cluster.kind == LOGICAL
        needs_live = options.command in _NEED_LIVE_DEVICES or (options.command == "run" and not is_logical)
        if needs_live and not is_live:
            raise InputError(f"cluster {name!r} is only described; {options.command} on --cluster=local")
        for other in ("graph", "robust"):
            if is_live and getattr(options, other):
                raise InputError(
                    f"{flag_text} has live devices, and --{other} is for described ones; give a preset or a .toml file "
                    "without addresses"
                )
        if cluster is not None and options.memory_limit:
            limited("--memory_limit", cluster, limits_of_texts("--memory_limit", options.memory_limit))
    if "out" in values and command != "train":  # whose --out is a file
        check_writable(pathlib.Path(values["out"]), f"--out={values['out']}")


def one_of_text(command: str) -> str:
    """Flags of which one is needed, as they are typed."""
    typed = ["FILE.py:NAME" if name == "script" else f"--{name}" for name in COMMANDS[command].one_of]
    return f"{', '.join(typed[:-1])} or {typed[-1]}"


def help_text(command: str) -> str:
    """Text of ``COMMAND --help``."""
    about = COMMANDS[command]
    lines = [f"tf-placer {command}: {about.help}", "", "example:"]
    lines += [f"  tf-placer {command} {EXAMPLES.get(command, '')}".rstrip(), ""]
    options = {option.name: option.metadata for option in options_of(command)}
    needed = [f"  --{name}" for name in about.required if not options[name]["default_of"][command]]
    needed = [f"  one of {one_of_text(command)}", *needed] if about.one_of else needed
    lines += ["needed:", *needed, ""] if needed else []
    heading = ""
    for name, option in options.items():
        if GROUP_OF[name] != heading:
            lines += [""] if heading else []
            heading = GROUP_OF[name]
            lines.append(f"{heading}:")
        text, default = option["about"], option["default_of"][command]
        if option["words"]:
            text = f"{text} One of {', '.join(option['words'])}."
        if default or (default == 0 and default is not False):
            text = f"{text} Without: {','.join(default) if isinstance(default, tuple) else default}."
        typed = f"  --{name}" if kind_of(name) is bool else f"  --{name}="
        typed = "  FILE.py:NAME, --script=" if name == about.word == "script" else typed
        wrapped = textwrap.wrap(text, _WIDTH - _COLUMN)
        # A long flag has a line of its own.
        lines += [typed] if len(typed) > _COLUMN - 2 else [f"{typed:<{_COLUMN}}{wrapped.pop(0)}"]
        lines += [" " * _COLUMN + line for line in wrapped]
    return "\n".join(lines)


_BASH = """# bash completion of tf-placer, which is asked for the words that may stand in place of the last one
_tf_placer() {
  local IFS=$'\\n'
  COMPREPLY=($(tf-placer complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  if [[ ${COMPREPLY[0]:-} == --*= ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -o default -F _tf_placer tf-placer
"""
COMPLETION = dict.fromkeys(SHELLS, _BASH) | {
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
    "fish": "complete -c tf-placer -a '(tf-placer complete (commandline -opc)[2..] (commandline -ct))'\n",
}


def completions(words: Sequence[str]) -> list[str]:
    """Words that may stand in place of the last one, which is being typed; none where a file may."""
    *before, current = words or [""]
    if not before:
        return [name for name in COMMANDS if name.startswith(current)]
    options = {f"--{option.name}": option for option in options_of(before[0])}
    flag = prefix = ""
    if current == "=":  # bash makes a word of it
        flag, current = before[-1], ""
    elif before[1:] and before[-1] == "=":
        flag = before[-2]
    elif current.startswith("--") and "=" in current:
        flag, _, current = current.partition("=")
        prefix = f"{flag}="
    elif before[-1] in options and kind_of(before[-1][2:]) is not bool:
        flag = before[-1]
    if flag not in options:
        typed = [name if kind_of(name[2:]) is bool else f"{name}=" for name in options]
        shells = SHELLS if before[0] == "completion" else ()
        return [word for word in (*typed, *shells) if word.startswith(current)]
    if "," in current:
        listed, _, current = current.rpartition(",")
        prefix = f"{prefix}{listed},"
    values: Mapping[str, Sequence[str]] = {
        **dict.fromkeys(("--workload", "--workloads", "--held_out"), workloads.names()),
        "--facts": (ALL, *workloads.names()),
        **dict.fromkeys(("--cluster", "--clusters"), (*preset_names(), LOCAL)),
        **dict.fromkeys(("--method", "--methods"), methods.names()),
        "--clear": (ALL, *kinds()),
    }
    words = options[flag].metadata["words"] or values.get(flag, ())
    return [f"{prefix}{word}" for word in words if word.startswith(current)]
