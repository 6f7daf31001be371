"""Texts made of the flags: help for a command, with its flags in groups, and completion in shells."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence

from absl import flags

# Heading -> flags below it, in their order. A test holds that every flag of every command is in one of them.
GROUPS = {
    "program (what is placed)": (
        "workload",
        "script",
        "program",
        "args",
        "saved_model",
        "tags",
        "signature",
        "meta_graph",
        "fetches",
        "graph",
        "batch_size",
        "parts",
        "batch_statistics",
        "input_shape",
        "op_library",
        "workloads",
        "held_out",
        "facts",
        "names",
    ),
    "devices": (
        "cluster",
        "clusters",
        "fleet",
        "memory_limit",
        "costs",
        "pin",
        "respect_devices",
        "open_workers",
    ),
    "search": (
        "budget_s",
        "budget_evaluations",
        "budget_of",
        "method",
        "methods",
        "set",
        "settings",
        "weights",
        "objective",
        "slow_down",
        "robust",
        "order",
        "fuse",
        "seed",
        "refresh",
        "searches",
        "evaluations",
        "epochs",
    ),
    "plan": ("plan", "placement", "complete_plan", "by", "write", "op", "layer"),
    "results": ("out", "tensorboard", "json"),
    "other": ("clear", "shell"),
}
_REST = "other"
_WIDTH, _COLUMN = 110, 26


def help_text(
    command: str,
    about: str,
    values: flags.FlagValues,
    example: str,
    required: Sequence[str] = (),
    one_of: Sequence[str] = (),
    word: str | None = None,
) -> str:
    """Text of ``COMMAND --help``.

    Args:
      command: its name.
      about: what it does, in a line.
      values: its flags.
      example: flags of a command line that works.
      required: flags that have no default.
      one_of: flags of which one must be given.
      word: the flag that a word without dashes stands for, or None.
    """
    lines = [f"tf-placer {command}: {about}", "", "example:", f"  {called(command, example)}", ""]
    needed = [name for name in required if not values[name].value and name not in one_of]
    if needed or one_of:
        lines.append("needed:")
        if one_of:
            lines.append(f"  one of {one_of_text(one_of, word)}")
        lines += [f"  --{name}" for name in needed]
        lines.append("")
    for heading, names in _groups(values):
        lines.append(f"{heading}:")
        for name in names:
            lines += _flag_lines(values[name], name == word)
        lines.append("")
    return "\n".join(lines).rstrip()


def plain_help(flag: flags.Flag) -> str:
    """Help of a flag without absl's additions: choices, and the hint at repeating."""
    about = re.sub(r"^<[^>]*>: ", "", flag.help) if isinstance(flag, flags.EnumFlag) else flag.help
    return re.sub(r";\s+repeat this option.*$", "", about, flags=re.DOTALL).strip()


def called(command: str, example: str) -> str:
    """A whole command line."""
    return f"tf-placer {command} {example}".rstrip()


def one_of_text(names: Sequence[str], word: str | None) -> str:
    """Flags of which one is needed, as they are typed."""
    typed = ["FILE.py:NAME" if name == word and name == "script" else f"--{name}" for name in names]
    return f"{', '.join(typed[:-1])} or {typed[-1]}"


def _groups(values: flags.FlagValues) -> list[tuple[str, list[str]]]:
    """Headings with the command's flags; flags without a group come last."""
    found = {heading: [name for name in names if name in values] for heading, names in GROUPS.items()}
    grouped = {name for names in found.values() for name in names}
    found[_REST] += sorted(name for name in values if name not in grouped)
    return [(heading, names) for heading, names in found.items() if names]


def _flag_lines(flag: flags.Flag, is_word: bool) -> list[str]:
    about = plain_help(flag)
    if isinstance(flag, flags.EnumFlag):
        about = f"{about} One of {', '.join(flag.parser.enum_values)}."
    default = flag.default
    if default is not None and default is not False and default != []:
        shown = ",".join(default) if isinstance(default, list) else default
        about = f"{about} Without: {shown}."
    typed = f"  --{flag.name}" if flag.boolean else f"  --{flag.name}="
    if is_word and flag.name == "script":
        typed = "  FILE.py:NAME, --script="
    wrapped = textwrap.wrap(about, _WIDTH - _COLUMN)
    first, rest = ([], wrapped) if len(typed) > _COLUMN - 2 else (wrapped[:1], wrapped[1:])
    head = f"{typed:<{_COLUMN}}{first[0]}" if first else typed
    return [head, *(" " * _COLUMN + line for line in rest)]


SHELLS = ("bash", "zsh", "fish")
PROGRAM = "tf-placer"


@dataclasses.dataclass(frozen=True)
class FlagWords:
    """Completions of one flag.

    Attributes:
      name: of the flag.
      help: one line.
      is_boolean: it needs no value.
      values: that it takes; empty where any text is taken, files among them.
      is_list: it takes several, separated by commas.
    """

    name: str
    help: str
    is_boolean: bool = False
    values: tuple[str, ...] = ()
    is_list: bool = False


@dataclasses.dataclass(frozen=True)
class CommandWords:
    """Completions of one command.

    Attributes:
      help: one line.
      flags: its flags.
      words: that may stand without dashes; empty where a file may, or nothing.
    """

    help: str
    flags: tuple[FlagWords, ...]
    words: tuple[str, ...] = ()


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
    flags = [
        f'    {name}) echo "{" ".join(_typed(flag) for flag in command.flags)} {" ".join(command.words)}" ;;'
        for name, command in commands.items()
    ]
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


def _typed(flag: FlagWords) -> str:
    return f"--{flag.name}" if flag.is_boolean else f"--{flag.name}="


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
