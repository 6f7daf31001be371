"""Flags of the commands, made from ``Options``: parsing, checks that need no TensorFlow, help and completion."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console
from absl import flags

from tf_placer import workloads
from tf_placer.base.arguments import InputError, fit, nearest
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
    preset_names,
)
from tf_placer.command_line.scripts.script import Script
from tf_placer.fleet.address import FleetAddress, check_ray, check_reachable
from tf_placer.planning.request import (
    ALL,
    PASSED_ON,
    REPEATED,
    Texts,
    check_together,
    group_of,
    kind_of,
    options_of,
)
from tf_placer.search import methods


def check_runs_on(command: str, cluster: str, is_live: bool) -> None:
    """Raises InputError where a command that needs live devices is given a cluster that is only described."""
    if not is_live:
        raise InputError(f"cluster {cluster!r} is only described; {command} on --cluster=local")


def cluster_names() -> tuple[str, ...]:
    """The described machines, and this one."""
    return (*preset_names(), LOCAL)


def list_clusters(console: rich.console.Console) -> list[dict[str, Any]]:
    """Prints the names; returns them with their devices, None for this machine, which is not probed."""
    keys, clusters = ("name", "type", "model", "memory_bytes"), list[dict[str, Any]]()
    for name in cluster_names():
        console.print(name)
        devices = () if name == LOCAL else Cluster.preset(name).devices
        rows = [{key: getattr(device, key) for key in keys} for device in devices]
        clusters.append({"name": name, "devices": rows or None})
    return clusters


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
_WIDTH, _COLUMN = 110, 26  # of help
PROGRAM = "tf-placer"
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
    for check, names in (
        (methods.check_name, ("method", "methods")),
        (workloads.check_name, ("workload", "workloads", "held_out")),
    ):
        for text in (text for name in names for text in _texts(values, name)):
            check(text)
    for name in (*_FILES, "saved_model"):
        if _given(values, name):
            check_kind(name, pathlib.Path(values[name].value), f"--{name}={values[name].value}")
    if _given(values, PASSED_ON):
        _check_passed_on(values[PASSED_ON].value[0])
    if _given(values, "script"):
        Script.named(values.script).check_found()
    if _given(values, "saved_model") and not pathlib.Path(values.saved_model).exists():
        file = pathlib.Path(values.saved_model) / "saved_model.pb"
        raise InputError(f"cannot read {file}: No such file or directory; give the folder of a SavedModel")
    for name, what in _FILES.items():
        if _given(values, name) and not (path := pathlib.Path(values[name].value)).is_file():
            why = "that is a folder" if path.is_dir() else "no such file"
            raise InputError(f"--{name}={path}: {why}; give {what}")
    check_together(lambda name: values[name].value if name in values else None, "--")
    _check_fleet(values)
    _check_clusters(command, values)
    for name in _FOLDERS:
        if _given(values, name) and command != "train":  # whose --out is a file
            check_writable(pathlib.Path(values[name].value), f"--{name}={values[name].value}")


def refuse_graph(command: str, values: flags.FlagValues, argv: Sequence[str]) -> None:
    """Raises InputError for a profiled graph given to a command that needs a program."""
    given = any(text.lstrip("-").partition("=")[0] == "graph" for text in argv if text.startswith("-"))
    if given and "workload" in values and "graph" not in values:
        raise InputError(f"{command} {NEEDS_A_PROGRAM}")


def _given(values: flags.FlagValues, name: str) -> bool:
    return name in values and bool(values[name].value)


def _check_passed_on(script: str) -> None:
    """Raises InputError for a missing script, or one with a syntax error."""
    said, path = f"--{PASSED_ON}={script}", pathlib.Path(script)
    if not path.is_file():
        why = "that is a folder" if path.is_dir() else "no such file"
        raise InputError(f"{said}: {why}; give a Python script: tf-placer run [--flag=value] SCRIPT.py ARGS")
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        raise InputError(f"{said} is no Python script ({error}); give one that python runs") from None


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
            for other in ("graph", "robust"):
                if is_live and _given(values, other):
                    raise InputError(
                        f"{said} has live devices, and --{other} is for described ones; give a preset or a .toml file "
                        "without addresses"
                    )
            if cluster is not None and _given(values, "memory_limit"):
                limited("--memory_limit", cluster, limits_of_texts("--memory_limit", values.memory_limit))


def _texts(values: flags.FlagValues, name: str) -> list[str]:
    """Texts of a flag that takes one text or a list; none where it is not given."""
    if not _given(values, name):
        return []
    value = values[name].value
    return [value] if isinstance(value, str) else list(value)


class _TextParser(flags.ArgumentParser):
    """Keeps the text of a flag for ``parse_flags``."""


def define(command: str) -> flags.FlagValues:
    """The flags of a command: their values are texts until ``parse_flags`` checks them."""
    values = flags.FlagValues()
    for option in options_of(command):
        kind, about = kind_of(option.name), option.metadata["about"]
        flag_type = flags.MultiFlag if option.name in REPEATED else flags.Flag
        is_bare = kind is bool or option.name == "clear"
        flag = flag_type(_TextParser(), None, option.name, None, about, boolean=is_bare)
        flags.DEFINE_flag(flag, values)
        default = option.metadata["default_of"][command]
        flag.value = list(default or ()) if kind == Texts else False if kind is bool else default
    return values


def take_text(flag: flags.Flag) -> None:
    """Replaces the text of a command's flag by its value; raises InputError for an impossible one."""
    kind, value = kind_of(flag.name), flag.value
    if flag.boolean and kind is not bool:  # it may stand without a value
        value = ALL if value == "true" else value
    if kind == Texts and isinstance(value, str):
        value = [word.strip() for word in value.split(",")]
    if value is not None and flag.name != PASSED_ON:  # a script's may be empty
        value = fit(kind, value, f"--{flag.name}", "text")
    flag.value = list(value) if kind == Texts else value


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
        remedy = nearest(f"--{error.flagname}", [f"--{name}" for name in values])
        raise InputError(f"{argv[0]} has no flag --{error.flagname}; {remedy}") from None
    except flags.Error as error:
        raise InputError(f"{' '.join(str(error).split())}; write --flag=value") from None
    if rest:
        _take_words(values, argv[0], rest, word)
    for flag in (values[name] for name in values if values[name].present):
        if flag.value in ("", [], [""]) or flag.value != flag.value:  # nan
            raise InputError(f"--{flag.name} is empty; give a value, or leave it out ({flag.help})")
        if isinstance(flag.parser, _TextParser):
            take_text(flag)
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
    missing += [f"--{name} ({values[name].help.rstrip('.')})" for name in required if not values[name].value]
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
    values[word].parse(rest[0])


def help_text(
    command: str,
    about: str,
    example: str,
    required: Sequence[str] = (),
    one_of: Sequence[str] = (),
    word: str | None = None,
) -> str:
    """Text of ``COMMAND --help``.

    Args:
      command: its name.
      about: its purpose in a line.
      example: flags of a command line that works.
      required: flags that have no default.
      one_of: flags of which one must be given.
      word: the flag that a word without dashes stands for, or None.
    """
    lines = [f"tf-placer {command}: {about}", "", "example:", f"  {called(command, example)}", ""]
    options = {option.name: option for option in options_of(command)}
    needed = [name for name in required if options[name].metadata["default_of"][command] is None]
    if needed or one_of:
        lines.append("needed:")
        if one_of:
            lines.append(f"  one of {one_of_text(one_of, word)}")
        lines += [*(f"  --{name}" for name in needed if name not in one_of), ""]
    heading = ""
    for name, option in options.items():
        if group_of(name) != heading:
            lines += [""] if heading else []
            heading = group_of(name)
            lines.append(f"{heading}:")
        lines += _flag_lines(option, command, name == word)
    return "\n".join(lines).rstrip()


def called(command: str, example: str) -> str:
    """A whole command line."""
    return f"tf-placer {command} {example}".rstrip()


def one_of_text(names: Sequence[str], word: str | None) -> str:
    """Flags of which one is needed, as they are typed."""
    typed = ["FILE.py:NAME" if name == word and name == "script" else f"--{name}" for name in names]
    return f"{', '.join(typed[:-1])} or {typed[-1]}"


def _flag_lines(option: dataclasses.Field[Any], command: str, is_word: bool) -> list[str]:
    about, default = option.metadata["about"], option.metadata["default_of"][command]
    if option.metadata["words"]:
        about = f"{about} One of {', '.join(option.metadata['words'])}."
    if default is not None:
        about = (
            f"{about} Without: {default if isinstance(default, str | int | float) else ','.join(default)}."
        )
    typed = f"  --{option.name}" if kind_of(option.name) is bool else f"  --{option.name}="
    if is_word and option.name == "script":
        typed = "  FILE.py:NAME, --script="
    wrapped = textwrap.wrap(about, _WIDTH - _COLUMN)
    first, rest = ([], wrapped) if len(typed) > _COLUMN - 2 else (wrapped[:1], wrapped[1:])
    head = f"{typed:<{_COLUMN}}{first[0]}" if first else typed
    return [head, *(" " * _COLUMN + line for line in rest)]


@dataclasses.dataclass(frozen=True)
class FlagWords:
    """Completions of one flag."""

    name: str  # of the flag
    help: str  # one line
    is_boolean: bool = False  # it needs no value
    values: tuple[str, ...] = ()  # that it takes; empty where any text is taken, files among them
    is_list: bool = False  # it takes several, separated by commas


@dataclasses.dataclass(frozen=True)
class CommandWords:
    """Completions of one command."""

    help: str  # one line
    flags: tuple[FlagWords, ...]  # its flags
    words: tuple[str, ...] = ()  # that may stand without dashes; empty where a file may, or nothing


def flag_words(command: str, words_of: Mapping[str, Sequence[str]]) -> tuple[FlagWords, ...]:
    """Completions of the flags of a command; ``words_of`` has the values of flags that take names."""
    words = []
    for option in options_of(command):
        name, kind = option.name, kind_of(option.name)
        values = option.metadata["words"] or tuple(words_of.get(name, ()))
        is_list = kind == Texts or name == "clear"
        words.append(FlagWords(name, option.metadata["about"], kind is bool, values, is_list))
    return tuple(words)


def completion(shell: str, commands: Mapping[str, CommandWords]) -> str:
    """The script of words for one of ``SHELLS``, so that completing needs no Python; zsh runs bash's."""
    if shell == "fish":
        return _fish(commands)
    return (
        _bash(commands)
        if shell == "bash"
        else f"autoload -U +X bashcompinit && bashcompinit\n{_bash(commands)}"
    )


def _bash(commands: Mapping[str, CommandWords]) -> str:
    """Script for bash, which breaks words at ``=`` or not, depending on the user's settings."""
    of_values: dict[str, list[str]] = {}
    with_value: dict[str, list[str]] = {}
    for name, command in commands.items():
        for flag in command.flags:
            if flag.values:
                of_values.setdefault(" ".join(flag.values), []).append(f'"{name} --{flag.name}"')
            if not flag.is_boolean:
                with_value.setdefault(name, []).append(f"--{flag.name}")
    values = [f'    {"|".join(where)}) echo "{words}" ;;' for words, where in of_values.items()]
    flags = []
    for name, command in commands.items():
        typed = [f"--{flag.name}" if flag.is_boolean else f"--{flag.name}=" for flag in command.flags]
        flags.append(f'    {name}) echo "{" ".join(typed)} {" ".join(command.words)}" ;;')
    taking = [f'    {name}) echo " {" ".join(some)} " ;;' for name, some in with_value.items()]
    return "\n".join(
        [
            f"# bash completion of {PROGRAM}; made by: {PROGRAM} completion bash",
            '_tf_placer_values() {\n  case "$1" in',
            *values,
            '  esac\n}\n_tf_placer_flags() {\n  case "$1" in',
            *flags,
            '  esac\n}\n_tf_placer_taking_values() {\n  case "$1" in',
            *taking,
            "  esac\n}",
            _BASH.replace("COMMANDS", " ".join(commands)),
        ]
    )


_BASH = """_tf_placer() {
  local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" flag="" before="" words
  local previous="${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "COMMANDS" -- "$current"))
    return
  fi
  if [[ $current == "=" ]]; then
    flag=$previous current=""
  elif [[ $previous == "=" ]]; then
    flag="${COMP_WORDS[COMP_CWORD-2]}"
  elif [[ $current == --*=* ]]; then
    flag="${current%%=*}" before="${current%%=*}=" current="${current#*=}"
  elif [[ $(_tf_placer_taking_values "$command") == *" $previous "* ]]; then
    flag=$previous
  fi
  if [[ -z $flag ]]; then
    words=$(_tf_placer_flags "$command")
  else
    words=$(_tf_placer_values "$command $flag")
    if [[ $current == *,* ]]; then
      before="$before${current%,*}," current="${current##*,}"
    fi
  fi
  COMPREPLY=($(compgen -P "$before" -W "$words" -- "$current"))
  if [[ ${COMPREPLY[0]:-} == --*= ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -o default -F _tf_placer tf-placer
"""


def _fish(commands: Mapping[str, CommandWords]) -> str:
    lines = [f"# fish completion of {PROGRAM}; made by: {PROGRAM} completion fish"]
    complete = f"complete -c {PROGRAM}"
    for name, command in commands.items():
        lines.append(f"{complete} -f -n __fish_use_subcommand -a {name} -d '{_plain(command.help)}'")
        after = f"{complete} -n '__fish_seen_subcommand_from {name}'"
        if command.words:
            lines.append(f"{after} -f -a '{' '.join(command.words)}'")
        for flag in command.flags:
            takes = (
                "" if flag.is_boolean else f" -x -a '{' '.join(flag.values)}'" if flag.values else " -r -F"
            )
            lines.append(f"{after} -l {flag.name}{takes} -d '{_plain(flag.help)}'")
    return "\n".join([*lines, ""])


def _plain(text: str) -> str:
    """Help without what shells read as their own."""
    return re.sub(r"\s+", " ", re.sub(r"['\"\[\]\\`$:]", " ", text)).strip()
