"""The command lines that stand on pages."""

from __future__ import annotations

import re
import shlex

from absl import flags

from tf_placer import __main__ as command_line


def flags_of(command: str) -> flags.FlagValues:
    values = flags.FlagValues()
    command_line.COMMANDS[command].define(values)
    return values


def command_lines(text: str) -> list[list[str]]:
    """Command and flags of every ``tf-placer`` or ``python -m tf_placer`` line in an indented block."""
    lines = re.findall(r"^    (?:tf-placer|\S*python -m tf_placer) (.*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]
