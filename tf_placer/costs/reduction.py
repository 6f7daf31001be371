"""Work of reductions, softmax and cross-entropy."""

from __future__ import annotations

from tf_placer.costs.formula import serve
from tf_placer.costs.op_view import OpView, elements
from tf_placer.costs.work import Kind, Work

# Operations per logit of a softmax: subtract the maximum, exponentiate (15), sum, divide (4), and as
# much again for the two comparisons and rounding.
_SOFTMAX_OPERATIONS = 22.0


def reduce(op: OpView) -> Work:
    """One operation per input element."""
    return Work(Kind.REDUCTION, float(elements(op.inputs[0])), op.moved_bytes)


def softmax(op: OpView) -> Work:
    """The logits are read twice: for the maximum and for the exponentials."""
    logits = op.inputs[0]
    return Work(Kind.REDUCTION, _SOFTMAX_OPERATIONS * elements(logits), logits.num_bytes + op.moved_bytes)


FORMULAS = {
    **serve(
        reduce,
        "Sum Mean Prod Max Min All Any EuclideanNorm L2Loss ArgMax ArgMin BiasAddGrad Cumsum Cumprod "
        "InTopKV2 TopKV2",
    ),
    **serve(softmax, "Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"),
}
