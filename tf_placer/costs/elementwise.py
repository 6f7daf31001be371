"""Work of element-wise ops: so many operations per output element, each byte once."""

from __future__ import annotations

from tf_placer.costs.formula import serve
from tf_placer.costs.op_view import OpView
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


FORMULAS = {
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
}
