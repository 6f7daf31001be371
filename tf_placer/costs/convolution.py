"""Work of convolutions and of their two gradients."""

from __future__ import annotations

import math

from tf_placer.costs.op_view import OpView, elements
from tf_placer.costs.work import Kind, Work


def forward(op: OpView) -> Work:
    """``2 * outputs * (window * input channels)``; the filter is ``[*window, C_in / groups, C_out]``."""
    return Work(Kind.CONVOLUTION, _flops(op.output_elements, op.inputs[1].shape), op.moved_bytes)


def backprop_input(op: OpView) -> Work:
    """As many multiply-adds as forward; inputs: image sizes, filter, gradient of the output."""
    return Work(Kind.CONVOLUTION, _flops(elements(op.inputs[2]), op.inputs[1].shape), op.moved_bytes)


def backprop_filter(op: OpView) -> Work:
    """As many multiply-adds as forward; the output has the filter's shape."""
    return Work(Kind.CONVOLUTION, _flops(elements(op.inputs[2]), op.outputs[0].shape), op.moved_bytes)


def depthwise_forward(op: OpView) -> Work:
    """``2 * outputs * window``; the filter is ``[height, width, C, multiplier]``."""
    return _depthwise(op, op.output_elements, op.inputs[1].shape)


def depthwise_backprop_input(op: OpView) -> Work:
    """``2 * output gradients * window``."""
    return _depthwise(op, elements(op.inputs[2]), op.inputs[1].shape)


def depthwise_backprop_filter(op: OpView) -> Work:
    """``2 * output gradients * window``; the output has the filter's shape."""
    return _depthwise(op, elements(op.inputs[2]), op.outputs[0].shape)


def _flops(outputs: int, filter_shape: tuple[int, ...]) -> float:
    return 2.0 * outputs * math.prod(filter_shape[:-1])


def _depthwise(op: OpView, outputs: int, filter_shape: tuple[int, ...]) -> Work:
    flops = 2.0 * outputs * math.prod(filter_shape[:2])
    return Work(Kind.DEPTHWISE_CONVOLUTION, flops, op.moved_bytes)


FORMULAS = {
    "Conv2D": forward,
    "Conv3D": forward,
    "Conv2DBackpropInput": backprop_input,
    "Conv3DBackpropInputV2": backprop_input,
    "Conv2DBackpropFilter": backprop_filter,
    "Conv3DBackpropFilterV2": backprop_filter,
    "DepthwiseConv2dNative": depthwise_forward,
    "DepthwiseConv2dNativeBackpropInput": depthwise_backprop_input,
    "DepthwiseConv2dNativeBackpropFilter": depthwise_backprop_filter,
}
