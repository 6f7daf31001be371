"""One public call with the values that it must refuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

NAN, INF = float("nan"), float("inf")


@dataclasses.dataclass(frozen=True)
class Told:
    """A wrong value of which the message says something else than the argument's name: a file or an op, say."""

    value: Any
    by: str


@dataclasses.dataclass(frozen=True)
class Row:
    """One public call.

    Attributes:
      call: bound, where it is a method.
      good: makes arguments with which it works.
      wrong: argument -> values that are refused.
      runs: False where the good call needs worker processes, which these tests do without.
    """

    call: Callable[..., Any]
    good: Callable[[], dict[str, Any]]
    wrong: Mapping[str, tuple[Any, ...]]
    runs: bool = True
