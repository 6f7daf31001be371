"""Shell completion of commands, flags and values: a script of words, so that no completion waits for Python."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from tf_placer.base.arguments import InputError

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
    """The script for a shell.

    Args:
      shell: one of ``SHELLS``.
      commands: name -> what can be typed after it.

    Raises:
      InputError: another shell.
    """
    if shell not in SHELLS:
        raise InputError(f"--shell={shell}: give one of {', '.join(SHELLS)}")
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _bash(commands: Mapping[str, CommandWords]) -> str:
    """Bash breaks words at ``=``, or does not, as its user has set it: both are heeded."""
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
  if [[ ${COMPREPLY[0]} == --*= ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -o default -F _tf_placer tf-placer
"""


def _typed(flag: FlagWords) -> str:
    return f"--{flag.name}" if flag.is_boolean else f"--{flag.name}="


def _zsh(commands: Mapping[str, CommandWords]) -> str:
    lines = [
        f"#compdef {PROGRAM}",
        f"# zsh completion; made by: {PROGRAM} completion zsh",
        "_tf_placer() {",
        "  local -a commands=(",
        *(f"    '{name}:{_plain(command.help)}'" for name, command in commands.items()),
        "  )",
        "  if ((CURRENT == 2)); then",
        "    _describe command commands",
        "    return",
        "  fi",
        "  shift words",
        "  ((CURRENT--))",
        '  case "$words[1]" in',
    ]
    for name, command in commands.items():
        word = f"({' '.join(command.words)})" if command.words else "_files"
        specs = [*map(_zsh_flag, command.flags), f"'*:word:{word}'"]
        lines.append(f"    {name}) _arguments \\\n      " + " \\\n      ".join(specs) + " ;;")
    return "\n".join([*lines, "  esac", "}", f"compdef _tf_placer {PROGRAM}", ""])


def _zsh_flag(flag: FlagWords) -> str:
    about = f"[{_plain(flag.help)}]"
    if flag.is_boolean:
        return f"'--{flag.name}{about}'"
    if not flag.values:
        return f"'--{flag.name}={about}:{flag.name}:_files'"
    words = " ".join(flag.values)
    values = f"_values -s , {flag.name} {words}" if flag.is_list else f"({words})"
    return f"'--{flag.name}={about}:{flag.name}:{values}'"


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
