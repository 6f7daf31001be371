"""The one table from op type to cost formula."""

from __future__ import annotations

from tf_placer.costs import data_movement, network_layers, per_element
from tf_placer.costs.op_view import Formula, OpView
from tf_placer.costs.work import Kind, Work

FAMILIES = (network_layers, per_element, data_movement)

FORMULA_OF_TYPE: dict[str, Formula] = {
    op_type: formula for family in FAMILIES for op_type, formula in family.FORMULAS.items()
}


def work_of(op: OpView, is_ranked: bool = True) -> Work:
    """Work of one op that calls no function; of unknown types a guess: all its bytes, once, and marked.

    Args:
      op: the op.
      is_ranked: every input and output has a known rank. Without, most formulas have nothing to go by, and its bytes
        are taken.
    """
    formula = FORMULA_OF_TYPE.get(op.type)
    if formula is None:
        return Work(Kind.STREAMING, 0.0, op.moved_bytes, guessed=True)
    if not is_ranked and op.type not in data_movement.WHY_FREE:
        return Work(Kind.STREAMING, 0.0, op.moved_bytes)
    return formula(op)
