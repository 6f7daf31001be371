"""Runs ops on this process's CPU, with and without what ``cpu_limits`` says that its kernels refuse.

Prints as JSON whether oneDNN is on, and case -> [said to be refused, said so with oneDNN, refused when it runs].
Usage: python -m tests.tf_placer.costs.cpu_limits_process
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from colocation.op_facts import index_graph
from colocation.tensorflow_internals import is_onednn_on
from colocation.units import paired_pools
from tf_placer.costs.analytic import cpu_limit
from tf_placer.costs.formulas import OpView
from tf_placer.graph.sizes import output_specs

raw = tf.raw_ops
BATCH, CHANNELS, SIDE = 2, 4, 6
CONVOLUTIONS = {
    2: ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    3: ("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
}
DEPTHWISE = [f"DepthwiseConv2dNative{gradient}" for gradient in ("", "BackpropInput", "BackpropFilter")]


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

    def calls(self, names: Iterable[str], **values: object) -> dict[str, Callable[[], object]]:
        """Op type -> calls it with those of the values that it takes."""

        def call(name: str) -> Callable[[], object]:
            make = getattr(raw, name)
            accepted = inspect.signature(make).parameters
            return lambda: make(**{key: value for key, value in values.items() if key in accepted})

        return {name: call(name) for name in names}

    def convolutions(self, dilation: int = 1, groups: int = 1) -> dict[str, Callable[[], object]]:
        filter_shape = [3] * self.dimensions + [CHANNELS // groups, CHANNELS]
        attributes = {
            "strides": self.each(1), "padding": "SAME", "data_format": self.format, "dilations": self.each(dilation),
            "input": self.tensor(), "input_sizes": self.shape(),
        }  # fmt: skip
        of_kernel = {"filter": values(*filter_shape), "filter_sizes": filter_shape}
        dense = self.calls(
            CONVOLUTIONS[self.dimensions], **attributes, **of_kernel, out_backprop=self.tensor()
        )
        if self.dimensions == 3 or groups > 1:
            return dense
        of_kernel = {
            "filter": values(3, 3, CHANNELS, 2), "filter_sizes": [3, 3, CHANNELS, 2],
            "out_backprop": self.tensor(2 * CHANNELS),
        }  # fmt: skip
        return dense | self.calls(DEPTHWISE, **attributes, **of_kernel)

    def pools(self, of_space: int = 2, of_channels: int = 1) -> dict[str, Callable[[], object]]:
        x, y = self.tensor(), self.tensor(CHANNELS // of_channels, SIDE // of_space)
        window = self.each(of_space, of_channels)
        attributes = {
            "ksize": window, "strides": window, "padding": "SAME", "data_format": self.format, "input": x, "value": x,
            "orig_input": x, "orig_output": y, "orig_input_shape": self.shape(),
        }  # fmt: skip
        names = [name + ("3D" if self.dimensions == 3 else "") for name in ("MaxPool", "AvgPool")]
        first = self.calls([*names, *(f"{name}Grad" for name in names)], **attributes, grad=y)
        second = self.calls([f"{names[0]}GradGrad"], **attributes, grad=x)
        if self.dimensions == 3:
            return first | second
        third = self.calls(["MaxPoolV2", "MaxPoolGradV2"], **attributes, grad=y)
        return first | second | third | self.calls(["MaxPoolGradGradV2"], **attributes, grad=x)

    def paired(self) -> dict[str, Callable[[], object]]:
        """The gradient of a pool that runs next to it."""
        x, window = self.tensor(), self.each(2)
        attributes = {"ksize": window, "strides": window, "padding": "SAME", "data_format": self.format}
        three = self.dimensions == 3
        pool, gradient = (raw.MaxPool3D, raw.MaxPool3DGrad) if three else (raw.MaxPool, raw.MaxPoolGrad)

        def build() -> tf.Tensor:
            y = pool(input=x, **attributes)
            return gradient(orig_input=x, orig_output=y, grad=y, **attributes)

        return {gradient.__name__: build}

    def others(self) -> dict[str, Callable[[], object]]:
        if self.dimensions == 3:
            return {}
        x = self.tensor()
        channels = "CHANNELS_FIRST" if self.first else "CHANNELS_LAST"
        weights = values(3, 3, CHANNELS, CHANNELS)
        convolution = {"filter": weights, "strides": self.each(1), "padding": "SAME", "data_format": channels}
        others = {"value": x, "bias": values(CHANNELS), "block_size": 2, "data_format": self.format}
        calls = self.calls(["DepthToSpace", "SpaceToDepth", "BiasAdd"], input=x, **others)
        return self.calls(["Conv"], input=x, **convolution) | calls

    def normalization(self, is_training: bool) -> dict[str, Callable[[], object]]:
        x, one = self.tensor(), values(CHANNELS)
        names = [f"FusedBatchNormGrad{version}" for version in ("", "V2", "V3")]
        return self.calls(
            names[2:] if self.dimensions == 3 else names,
            y_backprop=x, x=x, scale=one, reserve_space_1=one, reserve_space_2=one * one, reserve_space_3=values(0),
            is_training=is_training, data_format=self.format,
        )  # fmt: skip


def cases() -> dict[str, Callable[[], object]]:
    """Name -> makes the op in the default graph; names begin with the op type."""
    found: dict[str, Callable[[], object]] = {}
    for dimensions in (2, 3):
        for first in (False, True):
            layout = _Layout(first, dimensions)
            plain = layout.convolutions() | layout.pools() | layout.others()
            normalized = {
                f" {what}": layout.normalization(what == "training") for what in ("training", "inference")
            }
            for what, builds in {"": plain, " paired": layout.paired(), **normalized}.items():
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
