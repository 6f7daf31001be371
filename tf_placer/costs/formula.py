"""What a cost formula is, and how a family lists the op types it serves."""

from __future__ import annotations

from collections.abc import Callable

from tf_placer.costs.op_view import OpView
from tf_placer.costs.work import Work

Formula = Callable[[OpView], Work]


def serve(formula: Formula, op_types: str) -> dict[str, Formula]:
    """Table entries that give one formula to several op types, written as words of one string."""
    return dict.fromkeys(op_types.split(), formula)
