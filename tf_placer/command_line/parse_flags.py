"""Command lines read into flags, or refused in one line that names the flag."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from absl import flags

from tf_placer.arguments import nearest
from tf_placer.errors import InputError

_ILLEGAL = re.compile(r"flag --(\w+)=(.*?): ", re.DOTALL)


def parse_flags(
    values: flags.FlagValues, argv: Sequence[str], required: Sequence[str] = (), word: str | None = None
) -> None:
    """Reads what comes after ``argv[0]``.

    Args:
      values: the flags that there are.
      argv: what was typed, beginning with the command or the program.
      required: flags that must be given, or have a default.
      word: the flag that one word without dashes stands for; None where there must be none.

    Raises:
      InputError: a flag that there is not, one without a value or with one that is not possible, a word that is no
        flag, or a required flag that is missing.
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
    for name in required:
        if not values[name].value:
            raise InputError(f"{argv[0]} needs --{name}: {values[name].help}")


def _take_words(values: flags.FlagValues, command: str, rest: Sequence[str], word: str | None) -> None:
    """Sets the flag that a word stands for."""
    if word is None:
        raise InputError(f"{command} takes flags only, got {rest[0]!r}; write --flag=value")
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
        raise InputError(f"--{flag.name} is empty; give it a value, or leave it out ({flag.help})")
    if isinstance(flag.value, float) and math.isnan(flag.value):
        raise InputError(f"--{flag.name}=nan is no number; give {flag.parser.syntactic_help} ({flag.help})")


def _illegal(values: flags.FlagValues, message: str) -> InputError:
    found = _ILLEGAL.match(message)
    if found is None or found[1] not in values:
        return InputError(f"{message}; write --flag=value")
    flag = values[found[1]]
    if isinstance(flag, flags.EnumFlag):
        wanted = f"one of {', '.join(flag.parser.enum_values)}"
    else:
        wanted = "true or false" if flag.boolean else flag.parser.syntactic_help
    return InputError(f"--{flag.name}={found[2]} is not possible; give {wanted} ({flag.help})")


def _nearest(name: str, values: flags.FlagValues) -> str:
    known = [f"--{one}" for one in values]
    return nearest(f"--{name}", known) if known else "it takes none"
