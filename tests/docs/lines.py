"""The command lines that stand on pages."""

from __future__ import annotations

import re
import shlex


def command_lines(text: str) -> list[list[str]]:
    """Command and flags of every ``tf-placer`` or ``python -m tf_placer`` line in an indented block."""
    lines = re.findall(r"^    (?:tf-placer|\S*python -m tf_placer) (.*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]
