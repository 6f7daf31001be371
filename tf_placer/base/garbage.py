"""Python's collections of garbage, put off while something large is made."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Runs the block, or as a decorator the function, without looking for rings of garbage.

    A program of 50,000 ops is millions of objects, which all stay; yet each time that their number has grown by a
    quarter, all are looked through again. That was a fifth of the time in which such a program is split, and a third of
    that in which it is described to a planner. What is no ring is given back at once, as ever.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
