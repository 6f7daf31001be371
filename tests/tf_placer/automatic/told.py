"""Warnings of a call that a function runs as it is."""

import warnings
from collections.abc import Callable
from typing import Any

import tf_placer


def told_by(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call gives, and the texts of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run()
    return result, [str(one.message) for one in caught if issubclass(one.category, tf_placer.RunsAsItIs)]
