"""Work of matrix products: MatMul, batched MatMul, Einsum."""

from __future__ import annotations

import math

from tf_placer.costs.op_view import OpView
from tf_placer.costs.work import Kind, Work


def matmul(op: OpView) -> Work:
    """``2 * m * n * k``."""
    inner = op.inputs[0].shape[0 if op.flag("transpose_a") else 1]
    return Work(Kind.MATRIX_PRODUCT, 2.0 * op.output_elements * inner, op.moved_bytes)


def batch_matmul(op: OpView) -> Work:
    """``2 * batch * m * n * k``; the batch may broadcast, so it is read off the output."""
    inner = op.inputs[0].shape[-2 if op.flag("adj_x") else -1]
    return Work(Kind.MATRIX_PRODUCT, 2.0 * op.output_elements * inner, op.moved_bytes)


def einsum(op: OpView) -> Work:
    """``2 * outputs * (sizes of the labels summed away)``; with one operand nothing is multiplied."""
    left, _, result = op.node.attr["equation"].s.decode().replace(" ", "").partition("->")
    summed: dict[str, int] = {}
    for labels, spec in zip(left.split(","), op.inputs, strict=True):
        before, _, after = labels.partition("...")
        sizes = dict(zip(before, spec.shape, strict=False))
        sizes |= dict(zip(reversed(after), reversed(spec.shape), strict=False))
        summed |= {label: size for label, size in sizes.items() if label not in result}
    if len(op.inputs) == 1:
        return Work(Kind.REARRANGEMENT, float(op.input_elements), op.moved_bytes)
    return Work(Kind.MATRIX_PRODUCT, 2.0 * op.output_elements * math.prod(summed.values()), op.moved_bytes)


FORMULAS = {
    "MatMul": matmul,
    "BatchMatMul": batch_matmul,
    "BatchMatMulV2": batch_matmul,
    "BatchMatMulV3": batch_matmul,
    "Einsum": einsum,
}
