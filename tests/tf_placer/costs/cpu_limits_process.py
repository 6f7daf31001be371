"""Runs ops on this process's CPU, with and without what ``cpu_limits`` says that its kernels refuse.

Prints as JSON whether oneDNN is on, and case -> [said to be refused, said so with oneDNN, refused when it runs].
Usage: python -m tests.tf_placer.costs.cpu_limits_process
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from colocation.op_facts import index_graph
from colocation.tensorflow_internals import is_onednn_on
from colocation.units import paired_pools
from tf_placer.costs.analytic import cpu_limit
from tf_placer.costs.formulas import OpView
from tf_placer.graph import sizes as output_specs

raw = tf.raw_ops
BATCH, CHANNELS, SIDE = 2, 4, 6


def values(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(0).normal(size=shape).astype(np.float32))


class _Layout:
    """Shapes and attributes of one layout, in two dimensions or three."""

    def __init__(self, first: bool, dimensions: int = 2) -> None:
        self.first, self.dimensions = first, dimensions
        self.format = {(2, False): "NHWC", (2, True): "NCHW", (3, False): "NDHWC", (3, True): "NCDHW"}[
            dimensions, first
        ]

    def shape(self, channels: int = CHANNELS, side: int = SIDE) -> list[int]:
        space = [side] * self.dimensions
        return [BATCH, channels, *space] if self.first else [BATCH, *space, channels]

    def tensor(self, channels: int = CHANNELS, side: int = SIDE) -> tf.Tensor:
        return values(*self.shape(channels, side))

    def each(self, of_space: int, of_channels: int = 1) -> list[int]:
        space = [of_space] * self.dimensions
        return [1, of_channels, *space] if self.first else [1, *space, of_channels]

    def convolutions(self, dilation: int = 1, groups: int = 1) -> dict[str, Callable[[], object]]:
        x, y = self.tensor(), self.tensor()
        filter_shape = [3] * self.dimensions + [CHANNELS // groups, CHANNELS]
        weights = values(*filter_shape)
        attributes = {
            "strides": self.each(1), "padding": "SAME", "data_format": self.format, "dilations": self.each(dilation)
        }  # fmt: skip
        if self.dimensions == 3:
            return {
                "Conv3D": lambda: raw.Conv3D(input=x, filter=weights, **attributes),
                "Conv3DBackpropInputV2": lambda: raw.Conv3DBackpropInputV2(
                    input_sizes=self.shape(), filter=weights, out_backprop=y, **attributes
                ),
                "Conv3DBackpropFilterV2": lambda: raw.Conv3DBackpropFilterV2(
                    input=x, filter_sizes=filter_shape, out_backprop=y, **attributes
                ),
            }
        deep, deep_y = values(3, 3, CHANNELS, 2), self.tensor(2 * CHANNELS)
        grouped = {
            "Conv2D": lambda: raw.Conv2D(input=x, filter=weights, **attributes),
            "Conv2DBackpropInput": lambda: raw.Conv2DBackpropInput(
                input_sizes=self.shape(), filter=weights, out_backprop=y, **attributes
            ),
            "Conv2DBackpropFilter": lambda: raw.Conv2DBackpropFilter(
                input=x, filter_sizes=filter_shape, out_backprop=y, **attributes
            ),
        }
        return grouped if groups > 1 else {
            **grouped,
            "DepthwiseConv2dNative": lambda: raw.DepthwiseConv2dNative(input=x, filter=deep, **attributes),
            "DepthwiseConv2dNativeBackpropInput": lambda: raw.DepthwiseConv2dNativeBackpropInput(
                input_sizes=self.shape(), filter=deep, out_backprop=deep_y, **attributes
            ),
            "DepthwiseConv2dNativeBackpropFilter": lambda: raw.DepthwiseConv2dNativeBackpropFilter(
                input=x, filter_sizes=[3, 3, CHANNELS, 2], out_backprop=deep_y, **attributes
            ),
        }  # fmt: skip

    def pools(self, of_space: int = 2, of_channels: int = 1) -> dict[str, Callable[[], object]]:
        x, y = self.tensor(), self.tensor(CHANNELS // of_channels, SIDE // of_space)
        window = self.each(of_space, of_channels)
        attributes = {"ksize": window, "strides": window, "padding": "SAME", "data_format": self.format}
        if self.dimensions == 3:
            return {
                "MaxPool3D": lambda: raw.MaxPool3D(input=x, **attributes),
                "MaxPool3DGrad": lambda: raw.MaxPool3DGrad(orig_input=x, orig_output=y, grad=y, **attributes),
                "MaxPool3DGradGrad": lambda: raw.MaxPool3DGradGrad(
                    orig_input=x, orig_output=y, grad=x, **attributes
                ),
                "AvgPool3D": lambda: raw.AvgPool3D(input=x, **attributes),
                "AvgPool3DGrad": lambda: raw.AvgPool3DGrad(
                    orig_input_shape=self.shape(), grad=y, **attributes
                ),
            }
        return {
            "MaxPool": lambda: raw.MaxPool(input=x, **attributes),
            "MaxPoolV2": lambda: raw.MaxPoolV2(input=x, **attributes),
            "MaxPoolGrad": lambda: raw.MaxPoolGrad(orig_input=x, orig_output=y, grad=y, **attributes),
            "MaxPoolGradV2": lambda: raw.MaxPoolGradV2(orig_input=x, orig_output=y, grad=y, **attributes),
            "MaxPoolGradGrad": lambda: raw.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=x, **attributes),
            "MaxPoolGradGradV2": lambda: raw.MaxPoolGradGradV2(
                orig_input=x, orig_output=y, grad=x, **attributes
            ),
            "AvgPool": lambda: raw.AvgPool(value=x, **attributes),
            "AvgPoolGrad": lambda: raw.AvgPoolGrad(orig_input_shape=self.shape(), grad=y, **attributes),
        }

    def paired(self) -> dict[str, Callable[[], object]]:
        """The gradient of a pool that runs next to it."""
        x = self.tensor()
        window = self.each(2)
        attributes = {"ksize": window, "strides": window, "padding": "SAME", "data_format": self.format}
        pool, gradient = (
            (raw.MaxPool3D, raw.MaxPool3DGrad) if self.dimensions == 3 else (raw.MaxPool, raw.MaxPoolGrad)
        )

        def build() -> tf.Tensor:
            y = pool(input=x, **attributes)
            return gradient(orig_input=x, orig_output=y, grad=y, **attributes)

        return {gradient.__name__: build}

    def others(self) -> dict[str, Callable[[], object]]:
        x = self.tensor()
        if self.dimensions == 3:
            return {}
        weights = values(3, 3, CHANNELS, CHANNELS)
        channels = "CHANNELS_FIRST" if self.first else "CHANNELS_LAST"
        return {
            "Conv": lambda: raw.Conv(
                input=x, filter=weights, strides=self.each(1), padding="SAME", data_format=channels
            ),
            "DepthToSpace": lambda: raw.DepthToSpace(input=x, block_size=2, data_format=self.format),
            "SpaceToDepth": lambda: raw.SpaceToDepth(input=x, block_size=2, data_format=self.format),
            "BiasAdd": lambda: raw.BiasAdd(value=x, bias=values(CHANNELS), data_format=self.format),
        }  # fmt: skip

    def normalization(self, is_training: bool) -> dict[str, Callable[[], object]]:
        x, one = self.tensor(), values(CHANNELS)
        attributes = {"is_training": is_training, "data_format": self.format}
        inputs = {"y_backprop": x, "x": x, "scale": one, "reserve_space_1": one, "reserve_space_2": one * one}
        third = {
            "FusedBatchNormGradV3": lambda: raw.FusedBatchNormGradV3(
                **inputs, reserve_space_3=values(0), **attributes
            )
        }
        if self.dimensions == 3:
            return third
        return {
            "FusedBatchNormGrad": lambda: raw.FusedBatchNormGrad(**inputs, **attributes),
            "FusedBatchNormGradV2": lambda: raw.FusedBatchNormGradV2(**inputs, **attributes),
            **third,
        }


def cases() -> dict[str, Callable[[], object]]:
    """Name -> makes the op in the default graph; names begin with the op type."""
    found: dict[str, Callable[[], object]] = {}
    for dimensions in (2, 3):
        for first in (False, True):
            layout = _Layout(first, dimensions)
            for what, builds in (
                ("", {**layout.convolutions(), **layout.pools(), **layout.others()}),
                (" paired", layout.paired()),
                (" training", layout.normalization(True)),
                (" inference", layout.normalization(False)),
            ):
                found.update({f"{name} {layout.format}{what}": build for name, build in builds.items()})
        last = _Layout(False, dimensions)
        found.update({f"{name} dilated": build for name, build in last.convolutions(dilation=2).items()})
        found.update({f"{name} grouped": build for name, build in last.convolutions(groups=2).items()})
        # Of the first TensorFlow's shape function takes no such window at all; of the others it is an input.
        without = ("MaxPool3DGradGrad", "MaxPoolGradGradV2", "MaxPoolGradV2", "MaxPoolV2")
        pools = {name: build for name, build in last.pools(1, 2).items() if name not in without}
        found.update({f"{name} of channels": build for name, build in pools.items()})
    return found


def outcome(name: str) -> list[bool]:
    with tf.Graph().as_default() as graph:
        made = cases()[name]()
        fetched = made if isinstance(made, tf.Tensor) else made[0]
        graph_def = graph.as_graph_def()
    index = index_graph(graph_def)
    outputs = output_specs(graph_def)
    op = index.id_of_name[fetched.op.name]
    inputs = tuple(outputs[p][o] for p, o, consumer, _ in index.data_edges.tolist() if consumer == op)
    view = OpView(graph_def.node[op], inputs, outputs[op])
    config = tf.compat.v1.ConfigProto(allow_soft_placement=False)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        try:
            session.run(fetched)
            refused = False
        except tf.errors.OpError:
            refused = True
    is_paired = op in paired_pools(index)
    said = [cpu_limit(view, has_onednn, is_paired=is_paired) is not None for has_onednn in (False, True)]
    return [*said, refused]


if __name__ == "__main__":
    with tf.Graph().as_default():
        names = list(cases())
    json.dump({"onednn": is_onednn_on(), "cases": {name: outcome(name) for name in names}}, sys.stdout)
