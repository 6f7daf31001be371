"""Command lines read into flags, or refused in one line that names the flag."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from absl import flags

from tf_placer.arguments import nearest
from tf_placer.command_line.help_text import called, one_of_text, plain_help
from tf_placer.command_line.remedies import check_script
from tf_placer.errors import InputError

_ILLEGAL = re.compile(r"flag --(\w+)=(.*?): ", re.DOTALL)


def parse_flags(
    values: flags.FlagValues,
    argv: Sequence[str],
    required: Sequence[str] = (),
    word: str | None = None,
    one_of: Sequence[str] = (),
    example: str = "",
) -> None:
    """Reads what comes after ``argv[0]``.

    Args:
      values: the flags that there are.
      argv: what was typed, beginning with the command or the program.
      required: flags that must be given, or have a default.
      word: the flag that one word without dashes stands for; None where there must be none.
      one_of: flags of which exactly one must be given; empty where there are none.
      example: flags of a command line that works, told with all that is missing; "" for none.

    Raises:
      InputError: a flag that there is not, one without a value or with one that is not possible, a word that is no
        flag, or required flags that are missing: all of them at once.
    """
    values.set_gnu_getopt(True)  # flags may come after a word
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
    """Sets the flag that a word stands for."""
    if word is None:
        raise InputError(f"{command} takes flags only, got {rest[0]!r}; write --flag=value")
    if len(rest) > 1:
        raise InputError(f"{command} takes one word beside flags, got {rest[1]!r} too; write --flag=value")
    if values[word].present:
        raise InputError(f"--{word} and {rest[0]!r}, which stands for it, are given; give one of them")
    if word == "script":
        check_script(command, rest[0])
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
