"""A bug that is put into tf_placer for a while: a function of it replaced by one that does something else."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock


@dataclasses.dataclass(frozen=True)
class Bug:
    """One thing done wrongly.

    Attributes:
      what: goes wrong, in words.
      where: (module or class, name of the function in it) of everything that is replaced.
      replacement: takes the right function and returns the wrong one.
    """

    what: str
    where: tuple[tuple[Any, str], ...]
    replacement: Callable[[Any], Any]


@contextlib.contextmanager
def in_effect(bug: Bug) -> Iterator[None]:
    """Has tf_placer do it wrongly meanwhile."""
    with contextlib.ExitStack() as stack:
        for owner, name in bug.where:
            wrong = bug.replacement(getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, wrong))
        yield
