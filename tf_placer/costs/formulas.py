"""The one table from op type to cost formula."""

from __future__ import annotations

from tf_placer.costs import data_movement, network_layers, per_element
from tf_placer.costs.op_view import Formula, OpView
from tf_placer.costs.work import Kind, Work

FAMILIES = (network_layers, per_element, data_movement)

FORMULA_OF_TYPE: dict[str, Formula] = {
    op_type: formula for family in FAMILIES for op_type, formula in family.FORMULAS.items()
}


def work_of(op: OpView) -> Work:
    """Work of one op that calls no function; of unknown types a guess: all its bytes, once, and marked.

    Where a shape is an estimate its rank may be another one than the op takes, so formulas take shapes of any rank.
    """
    formula = FORMULA_OF_TYPE.get(op.type)
    if formula is None:
        return Work(Kind.STREAMING, 0.0, op.moved_bytes, guessed=True)
    return formula(op)
