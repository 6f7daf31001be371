"""Steps of a layer that was unrolled over time: one unit each."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterator

from colocation.constraints import Merge
from colocation.graph_index import GraphIndex
from colocation.units import Heuristic, Units

_NUMBERED = re.compile(r"^(?P<base>.*?)(?:_(?P<number>\d+))?$", re.DOTALL)
_GRADIENT = re.compile(r"(?:^|/)(?:gradients|gradient_tape)(?:_\d+)?/")


def unrolled_calls(pattern: str) -> Heuristic:
    """Makes the rule that each step of an LSTM is one group (ColocRL rule 3) where all steps have one name scope.

    TensorFlow numbers what is called again: of 560 ops ``layer_0/step/matmul_K`` in 70 steps, each step has 8. So
    a scope was called T times, where T divides how often each of its names is there, and the k-th of n ops of a name
    belongs to call floor(k T / n). T is the greatest common divisor. Gradients are left alone: ``default_groups``
    ties them to what they differentiate.

    Args:
      pattern: regular expression; a scope is what of an op's name ends where it is found. For example
        ``r"(?:^|/)step/"``.

    Raises:
      ValueError: the pattern is not a regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"step pattern {pattern!r} is not a regular expression: {error}") from error

    def merge_steps(index: GraphIndex, units: Units) -> Iterator[Merge]:
        del units  # the rule is about ops
        for scope, names in _numbered_ops(index, compiled).items():
            calls = math.gcd(*(len(numbers) for numbers in names.values()))
            first: dict[int, int] = {}
            for numbers in names.values():
                for position, number in enumerate(sorted(numbers)):
                    call = position * calls // len(numbers)
                    for op in numbers[number]:
                        leader = first.setdefault(call, op)
                        if leader != op:
                            reason = (
                                f"{index.names[op]} is of the same step of {scope} as {index.names[leader]}"
                            )
                            yield Merge(leader, op, "unrolled_calls", reason)

    return merge_steps


def _numbered_ops(index: GraphIndex, pattern: re.Pattern[str]) -> dict[str, dict[str, dict[int, list[int]]]]:
    """Scope -> name without its number -> number -> the ops of that name, or below it."""
    scopes: dict[str, dict[str, dict[int, list[int]]]] = collections.defaultdict(
        lambda: collections.defaultdict(lambda: collections.defaultdict(list))
    )
    for op, name in enumerate(index.names):
        match = None if _GRADIENT.search(name) else pattern.search(name)
        if match is None:
            continue
        numbered = _NUMBERED.match(name[match.end() :].partition("/")[0])
        assert numbered is not None  # the expression takes any text of one line
        scopes[name[: match.end()]][numbered["base"]][int(numbered["number"] or 0)].append(op)
    return scopes
