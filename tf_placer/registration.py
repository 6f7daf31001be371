"""What may be added to a table of named things."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from tf_placer.errors import InputError


def check_registration(kind: str, name: Any, value: Any, built_in: Collection[str]) -> None:
    """Refuses a name or a value that a table could not give back.

    Args:
      kind: what the table holds, for messages: ``"method"``.
      name: stands in flags, where commas separate names, and in names of files.
      value: what it stands for.
      built_in: names that keep their meaning; others may be registered anew, as a notebook does.

    Raises:
      InputError: the name is none or is taken, or the value cannot be called.
    """
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise InputError(f"{name!r} is no name of a {kind}; use small letters, digits and _")
    if name in built_in:
        raise InputError(f"{name!r} comes with tf_placer; give your {kind} another name")
    if not callable(value):
        raise InputError(f"{kind} {name!r} is {value!r}, which cannot be called; give a function")
