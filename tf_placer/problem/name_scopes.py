"""Name scopes: the part of an op's name that its program gave, without what TensorFlow put before and behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Scope = tuple[str, ...]

# What TensorFlow puts before the names of gradients and of ops whose call was inlined.
_PREFIX = re.compile(r"(gradient_tape|gradients|grad_ys|(Stateful)?PartitionedCall)(_\d+)?")
_COUNT = re.compile(r"_\d+\Z")
_GRADIENT = "_grad"


def scopes_of(names: Sequence[str], types: Sequence[str]) -> list[Scope]:
    """The scope of each op: ``a/dense/MatMul/ReadVariableOp`` is in ``("a", "dense")``, as is its gradient.

    A part of a name that is an op's own, or that TensorFlow made of a type of op, is no scope, nor is what follows it.

    Args:
      names: [N] of the ops.
      types: [N] of the ops; "" where they are not known.
    """
    known: dict[str, Scope] = {}
    ops, kinds = set(names), set(types) - {""}
    return [_scope(name.rpartition("/")[0], ops, kinds, known) for name in names]


def without_count(part: str) -> str:
    """``dense_1`` as ``dense``: what TensorFlow counted up, or a program itself."""
    return _COUNT.sub("", part)


def below(scopes: Iterable[Scope]) -> set[Scope]:
    """All scopes that hold another one of these."""
    return {scope[:depth] for scope in scopes for depth in range(1, len(scope))}


def _scope(path: str, ops: set[str], kinds: set[str], known: dict[str, Scope]) -> Scope:
    if path not in known:
        parts = path.split("/") if path else []
        first = next((i for i, part in enumerate(parts) if not _PREFIX.fullmatch(part)), len(parts))
        end = next(
            (i for i in range(first, len(parts)) if _is_op(parts[: i + 1], first, ops, kinds)), len(parts)
        )
        known[path] = tuple(parts[first:end])
    return known[path]


def _is_op(parts: Sequence[str], first: int, ops: set[str], kinds: set[str]) -> bool:
    """Whether ``parts``, or what is left without the first of them, is the name of an op, or its last a type of ops."""
    last = parts[-1].removesuffix(_GRADIENT)
    names = ("/".join(parts), "/".join((*parts[first:-1], last)))
    return without_count(last) in kinds or any(name in ops for name in names)
