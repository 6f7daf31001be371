"""Help for a command: an example, what is needed, and then its flags in groups."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

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
    """Help of a flag as it was defined: without the choices and the hint at repeating that absl adds."""
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
    """Headings with those of their flags that there are; flags of no group come last."""
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
