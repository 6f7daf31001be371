"""Work of what networks are layers of: convolutions, matrix products, pooling, batch normalization."""

from __future__ import annotations

import math

from tf_placer.costs.op_view import Formula, OpView, elements
from tf_placer.costs.work import Kind, Work


def convolution(op: OpView) -> Work:
    """``2 * outputs * (window * input channels)``; the filter is ``[*window, C_in / groups, C_out]``."""
    return Work(Kind.CONVOLUTION, _convolution_flops(op.output_elements, op.inputs[1].shape), op.moved_bytes)


def convolution_input_gradient(op: OpView) -> Work:
    """As many multiply-adds as convolution; inputs: image sizes, filter, gradient of the output."""
    return Work(
        Kind.CONVOLUTION, _convolution_flops(elements(op.inputs[2]), op.inputs[1].shape), op.moved_bytes
    )


def convolution_filter_gradient(op: OpView) -> Work:
    """As many multiply-adds as convolution; the output has the filter's shape."""
    return Work(
        Kind.CONVOLUTION, _convolution_flops(elements(op.inputs[2]), op.outputs[0].shape), op.moved_bytes
    )


def depthwise(op: OpView) -> Work:
    """``2 * outputs * window``; the filter is ``[height, width, C, multiplier]``."""
    return _depthwise(op, op.output_elements, op.inputs[1].shape)


def depthwise_input_gradient(op: OpView) -> Work:
    """``2 * output gradients * window``."""
    return _depthwise(op, elements(op.inputs[2]), op.inputs[1].shape)


def depthwise_filter_gradient(op: OpView) -> Work:
    """``2 * output gradients * window``; the output has the filter's shape."""
    return _depthwise(op, elements(op.inputs[2]), op.outputs[0].shape)


def _convolution_flops(outputs: int, filter_shape: tuple[int, ...]) -> float:
    return 2.0 * outputs * math.prod(filter_shape[:-1])


def _depthwise(op: OpView, outputs: int, filter_shape: tuple[int, ...]) -> Work:
    flops = 2.0 * outputs * math.prod(filter_shape[:2])
    return Work(Kind.DEPTHWISE_CONVOLUTION, flops, op.moved_bytes)


def matmul(op: OpView) -> Work:
    """``2 * m * n * k``."""
    return _product(op, op.flag("transpose_a"), op.flag("transpose_b"))


def batch_matmul(op: OpView) -> Work:
    """``2 * batch * m * n * k``; the batch may broadcast, so it is read off the output."""
    return _product(op, op.flag("adj_x"), op.flag("adj_y"))


def _product(op: OpView, is_left_turned: bool, is_right_turned: bool) -> Work:
    """The summed dimension is read off a matrix: a shape that is an estimate may be of fewer dimensions."""
    sides = zip(op.inputs, (-2 if is_left_turned else -1, -1 if is_right_turned else -2), strict=True)
    inner = next((spec.shape[axis] for spec, axis in sides if len(spec.shape) >= 2), 1)
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


def pool(op: OpView) -> Work:
    """One operation per output and window position."""
    return _pool(op, op.output_elements)


def pool_gradient(op: OpView) -> Work:
    """One operation per gradient of an output (the last input) and window position."""
    return _pool(op, elements(op.inputs[-1]))


def _pool(op: OpView, outputs: int) -> Work:
    return Work(Kind.REDUCTION, float(outputs * math.prod(op.ints("ksize"))), op.moved_bytes)


def batch_normalization(op: OpView) -> Work:
    """Training reads the input twice (moments, then scale) and writes it once; inference reads it once."""
    x = op.inputs[0]
    training = op.flag("is_training")
    passes, operations = (3, 8.0) if training else (2, 2.0)
    return Work(Kind.REDUCTION, operations * elements(x), passes * x.num_bytes)


def batch_normalization_gradient(op: OpView) -> Work:
    """Reads gradient and input twice (two sums, then the gradient) and writes one tensor of that size."""
    x = op.inputs[1]
    return Work(Kind.REDUCTION, 12.0 * elements(x), 5 * x.num_bytes)


FORMULAS: dict[str, Formula] = {
    "Conv2D": convolution,
    "Conv3D": convolution,
    "Conv2DBackpropInput": convolution_input_gradient,
    "Conv3DBackpropInputV2": convolution_input_gradient,
    "Conv2DBackpropFilter": convolution_filter_gradient,
    "Conv3DBackpropFilterV2": convolution_filter_gradient,
    "DepthwiseConv2dNative": depthwise,
    "DepthwiseConv2dNativeBackpropInput": depthwise_input_gradient,
    "DepthwiseConv2dNativeBackpropFilter": depthwise_filter_gradient,
    "MatMul": matmul,
    "BatchMatMul": batch_matmul,
    "BatchMatMulV2": batch_matmul,
    "BatchMatMulV3": batch_matmul,
    "Einsum": einsum,
    "MaxPool": pool,
    "AvgPool": pool,
    "MaxPool3D": pool,
    "AvgPool3D": pool,
    "MaxPoolWithArgmax": pool,
    "MaxPoolGrad": pool_gradient,
    "AvgPoolGrad": pool_gradient,
    "MaxPool3DGrad": pool_gradient,
    "AvgPool3DGrad": pool_gradient,
    "FusedBatchNorm": batch_normalization,
    "FusedBatchNormV2": batch_normalization,
    "FusedBatchNormV3": batch_normalization,
    "FusedBatchNormGrad": batch_normalization_gradient,
    "FusedBatchNormGradV2": batch_normalization_gradient,
    "FusedBatchNormGradV3": batch_normalization_gradient,
}
