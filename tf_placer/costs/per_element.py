"""Work that counts by elements: element-wise ops, reductions, random numbers, updates of variables."""

from __future__ import annotations

import functools

from tf_placer.costs.op_view import Formula, OpView, elements, serve
from tf_placer.costs.work import Kind, Work

# Operations per output element: arithmetic counts 1, a division or root 4, a transcendental function 15
# (estimates: a handful of polynomial terms and range reduction; rounded).
_DIVISION, _TRANSCENDENTAL = 4.0, 15.0


def arithmetic(op: OpView) -> Work:
    """One operation per output, every input and output once; a broadcast input counts its own bytes only."""
    return Work(Kind.STREAMING, float(op.output_elements), op.moved_bytes)


def division(op: OpView) -> Work:
    """Divisions and roots; bytes as for ``arithmetic``."""
    return Work(Kind.STREAMING, _DIVISION * op.output_elements, op.moved_bytes)


def transcendental(op: OpView) -> Work:
    """Exponentials, logarithms, trigonometry and their like; bytes as for ``arithmetic``."""
    return Work(Kind.STREAMING, _TRANSCENDENTAL * op.output_elements, op.moved_bytes)


def add_n(op: OpView) -> Work:
    """One addition per element of every input but the first."""
    return Work(Kind.STREAMING, float((len(op.inputs) - 1) * op.output_elements), op.moved_bytes)


# Operations per logit of a softmax: subtract the maximum, exponentiate (15), sum, divide (4), and as
# much again for the two comparisons and rounding.
_SOFTMAX_OPERATIONS = 22.0


def reduction(op: OpView) -> Work:
    """One operation per input element."""
    return Work(Kind.REDUCTION, float(elements(op.inputs[0])), op.moved_bytes)


def softmax(op: OpView) -> Work:
    """The logits are read twice: for the maximum and for the exponentials."""
    logits = op.inputs[0]
    return Work(Kind.REDUCTION, _SOFTMAX_OPERATIONS * elements(logits), logits.num_bytes + op.moved_bytes)


# Philox 4x32-10 makes four numbers in ten rounds of about ten integer operations; a normal number adds a
# logarithm, a root and a sine per pair. Rounded up to one figure for both.
_OPERATIONS_PER_DRAW = 50.0


def draw(op: OpView) -> Work:
    """A fixed number of operations per number; the output is written."""
    return Work(Kind.RANDOM, _OPERATIONS_PER_DRAW * op.output_elements, op.output_bytes)


# Passes over a gradient-sized buffer (reads and writes of variable, slots and gradient), and operations per
# element, from the update rule of each op. The twin for v1 variables (``_twins``) does the same.
_PASSES_AND_OPERATIONS: dict[str, tuple[int, float]] = {
    "AssignAddVariableOp": (3, 1.0),
    "AssignSubVariableOp": (3, 1.0),
    "ResourceApplyGradientDescent": (3, 2.0),
    "ResourceApplyMomentum": (5, 4.0),
    "ResourceApplyKerasMomentum": (5, 4.0),
    "ResourceApplyAdagrad": (5, 8.0),
    "ResourceApplyAdagradV2": (5, 8.0),
    "ResourceApplyRMSProp": (7, 12.0),
    "ResourceApplyCenteredRMSProp": (9, 14.0),
    "ResourceApplyAdam": (7, 14.0),
    "ResourceApplyAdamWithAmsgrad": (9, 15.0),
    "ResourceApplyAdaMax": (7, 12.0),
    "ResourceApplyAdadelta": (7, 16.0),
    "ResourceApplyFtrl": (7, 20.0),
    "ResourceApplyFtrlV2": (7, 20.0),
}


def variable_update(op: OpView, passes: int, operations: float) -> Work:
    """``passes`` times the largest input that is not a handle: the gradient or the added value."""
    value = max(op.inputs[1:], key=lambda spec: spec.num_bytes)
    return Work(Kind.STREAMING, operations * elements(value), passes * value.num_bytes)


_WITHOUT_TWIN = frozenset({"ResourceApplyAdamWithAmsgrad", "ResourceApplyKerasMomentum"})


def _twins(op_type: str) -> tuple[str, ...]:
    """An op on a resource variable, and what it is called on a v1 variable if there is such."""
    twin = op_type.removeprefix("Resource").removesuffix("VariableOp")
    return (op_type,) if op_type in _WITHOUT_TWIN else (op_type, twin)


FORMULAS: dict[str, Formula] = {
    **serve(
        arithmetic,
        "Add AddV2 Sub Mul MulNoNan Neg Abs Sign Square SquaredDifference Maximum Minimum BiasAdd BiasAddV1 "
        "Relu Relu6 ReluGrad Relu6Grad LeakyRelu LeakyReluGrad Floor Ceil Round Rint ClipByValue Cast "
        "Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot "
        "IsNan IsFinite IsInf BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift RightShift "
        "Select SelectV2 ZerosLike OnesLike CheckNumerics CheckNumericsV2 Real Imag Conj Complex Snapshot",
    ),
    **serve(
        division,
        "Div RealDiv DivNoNan FloorDiv TruncateDiv Mod FloorMod TruncateMod Sqrt Rsqrt SqrtGrad RsqrtGrad "
        "Reciprocal Inv InvGrad ReciprocalGrad Xdivy Softsign SoftsignGrad",
    ),
    **serve(
        transcendental,
        "Exp Expm1 Log Log1p Xlogy Xlog1py Pow Sin Cos Tan Asin Acos Atan Atan2 Sinh Cosh Tanh TanhGrad "
        "Asinh Acosh Atanh Sigmoid SigmoidGrad Elu EluGrad Selu SeluGrad Softplus SoftplusGrad "
        "Erf Erfc Erfinv Ndtri Lgamma Digamma",
    ),
    **serve(add_n, "AddN AccumulateNV2"),
    **serve(
        reduction,
        "Sum Mean Prod Max Min All Any EuclideanNorm L2Loss ArgMax ArgMin BiasAddGrad Cumsum Cumprod "
        "InTopKV2 TopKV2",
    ),
    **serve(softmax, "Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"),
    **serve(
        draw,
        "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal Multinomial RandomShuffle "
        "StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomUniformInt StatelessRandomUniformIntV2 "
        "StatelessRandomNormal StatelessRandomNormalV2 StatelessTruncatedNormal StatelessTruncatedNormalV2 "
        "StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomGetKeyCounter "
        "StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg StatelessMultinomial StatefulUniform "
        "StatefulUniformInt StatefulUniformFullInt StatefulStandardNormalV2 StatefulTruncatedNormal RngSkip "
        "RngReadAndSkip",
    ),
    **{
        twin: functools.partial(variable_update, passes=passes, operations=operations)
        for op_type, (passes, operations) in _PASSES_AND_OPERATIONS.items()
        for twin in _twins(op_type)
    },
}
