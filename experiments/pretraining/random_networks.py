"""Training steps of families that no table has, in plain TensorFlow, whose structure a seed draws, and their sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.tensorflow_internals import gradients_forgotten
from tf_placer.base.eager import outside_functions
from tf_placer.graph.item import Item
from tf_placer.transform.split.split_batch import split
from tf_placer.workloads.spec import begin, image_batch, optimizer_named, sentence_batch

_CLASSES = 100
_IDS = 16  # that a tower looks up for an example
_OPERATIONS = ("conv_1", "conv_3", "separable_3", "separable_5", "dilated_3", "max_3", "average_3", "same")
_CELL_OPS = {"plain": 22, "minimal": 32, "gru": 56, "lstm": 48}  # of a recurrent layer in a step of time
_ACTIVATIONS = (tf.nn.relu, tf.nn.gelu, tf.nn.silu, tf.tanh)
# Cell of a recurrent layer -> matrices of its first product.
_GATES = {"plain": 1, "minimal": 2, "gru": 2, "lstm": 4}


class Net:
    """Layers that make their weights where a step is traced, and draws of what the settings leave open."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.variables: list[tf.Variable] = []
        self.read: list[tf.Tensor] = []  # their values in the step

    def choice(self, values: Sequence[Any]) -> Any:
        """One of them, each as likely as the others."""
        return values[int(self.random.integers(len(values)))]

    def weight(self, *shape: int) -> tf.Tensor:
        """Value of a new variable in the step."""
        with outside_functions():
            self.variables.append(tf.Variable(np.full(shape, 0.01, np.float32)))
        self.read.append(self.variables[-1].read_value())
        return self.read[-1]

    def dense(self, x: tf.Tensor, width: int, activation: Callable | None = None) -> tf.Tensor:
        """[..., inputs] to [..., width], by one product of two matrices."""
        *lead, inputs = x.shape
        with tf.name_scope("dense"):
            flat = tf.reshape(x, [-1, inputs]) if lead[1:] else x
            y = tf.nn.bias_add(flat @ self.weight(inputs, width), self.weight(width))
            y = activation(y) if activation else y
            return tf.reshape(y, [*lead, width]) if lead[1:] else y

    def norm(self, x: tf.Tensor) -> tf.Tensor:
        """Layer normalization."""
        with tf.name_scope("norm"):
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            weights = [self.weight(x.shape[-1]) for _ in range(2)]
            return tf.nn.batch_normalization(x, mean, variance, *weights, 1e-5)

    def convolution(self, x: tf.Tensor, width: int, operation: str = "conv_3", stride: int = 1) -> tf.Tensor:
        """One of ``_OPERATIONS`` on images; convolutions with fused batch normalization and ReLU."""
        kind, _, digit = operation.partition("_")
        size, inputs = int(digit or 1), x.shape[-1]
        with tf.name_scope(operation):
            if kind in ("max", "average", "same"):
                pool = tf.nn.avg_pool2d if kind == "average" else tf.nn.max_pool2d
                return x if kind == "same" and stride == 1 else pool(x, size, stride, "SAME")
            if kind == "separable":
                kernels = self.weight(size, size, inputs, 1), self.weight(1, 1, inputs, width)
                x = tf.nn.separable_conv2d(x, *kernels, [1, stride, stride, 1], "SAME")
            else:
                dilation = 2 if kind == "dilated" and stride == 1 else 1
                x = tf.nn.conv2d(
                    x, self.weight(size, size, inputs, width), stride, "SAME", dilations=dilation
                )
            return tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(x, self.weight(width), self.weight(width))[0])

    def attention(self, x: tf.Tensor, heads: int, is_causal: bool = False) -> tf.Tensor:
        """Attention of [B, T, width] to itself."""
        _, length, width = x.shape
        with tf.name_scope("attention"):
            query, key, value = (
                tf.transpose(
                    tf.reshape(self.dense(x, width), [-1, length, heads, width // heads]), [0, 2, 1, 3]
                )
                for _ in range(3)
            )
            scores = tf.matmul(query, key, transpose_b=True) * (width // heads) ** -0.5
            if is_causal:
                scores += tf.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))
            read = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
            return self.dense(tf.reshape(read, x.shape), width)


def cells(net: Net, x: tf.Tensor, depth: int, nodes: int, width: int, **_: Any) -> tf.Tensor:
    """Classes of images, by ``depth`` cells: the same random graph of so many nodes, and two that reduce."""
    normal, reduction = (
        [
            [(net.choice(_OPERATIONS), int(net.random.integers(node + 1))) for _ in range(net.choice((1, 2)))]
            for node in range(nodes)
        ]
        for _ in range(2)
    )
    x = net.convolution(x, width, stride=2)
    for number in range(depth):
        reduces = depth > 2 and number in (depth // 3, 2 * depth // 3)
        graph, stride, width = (reduction, 2, 2 * width) if reduces else (normal, 1, width)
        with tf.name_scope(f"cell_{number}"):
            ends = [net.convolution(x, width, "conv_1")]  # end 0 is the input, and node n is end n + 1
            for edges in graph:
                parts = [net.convolution(ends[end], width, kind, 1 if end else stride) for kind, end in edges]
                ends.append(tf.add_n(parts) if parts[1:] else parts[0])
            read = {end for edges in graph for _, end in edges}
            x = tf.concat([ends[end] for end in range(1, nodes + 1) if end not in read], -1)
    return net.dense(tf.reduce_mean(x, [1, 2]), _CLASSES)


def u_net(
    net: Net, x: tf.Tensor, depth: int, levels: int, width: int, adds: bool, attends: bool, **_: Any
) -> tf.Tensor:
    """Classes of pixels: ``levels`` halvings and back, ``depth`` convolutions on each level and way."""

    def block(x: tf.Tensor, outputs: int) -> tf.Tensor:
        for number in range(depth):
            y = net.convolution(x, outputs)
            x = y + x if adds and number else y
        return x

    passed = []
    for level in range(levels + 1):
        with tf.name_scope(f"down_{level}"):
            x = block(tf.nn.max_pool2d(x, 2, 2, "SAME") if level else x, width << level)
        passed.append(x)
    if attends:
        flat = tf.reshape(x, [x.shape[0], -1, x.shape[3]])
        x += tf.reshape(net.attention(flat, 8), x.shape)
    for level in reversed(range(levels)):
        with tf.name_scope(f"up_{level}"):
            grown = tf.raw_ops.ResizeNearestNeighbor(images=x, size=passed[level].shape[1:3])
            x = block(tf.concat([grown, passed[level]], -1), width << level)
    return net.dense(x, _CLASSES // 10)


def recurrent(
    net: Net,
    x: tf.Tensor,
    depth: int,
    width: int,
    vocabulary: int,
    cell: str,
    ways: int,
    attends: bool,
    **_: Any,
) -> tf.Tensor:
    """Next words, by layers of several widths, one way or both ways, with skips and attention."""
    states = [tf.unstack(tf.gather(net.weight(vocabulary, width), x), axis=1)]
    for number in range(depth):
        read, units = states[-1], int(width * net.choice((0.5, 1, 1, 2)))
        kind = "gru" if cell == "lstm" and not number else cell  # layers of LSTM alone are a table's family
        with tf.name_scope(f"layer_{number}"):
            if number > 1 and net.random.random() < 0.5:
                read = [tf.concat(pair, 1) for pair in zip(read, net.choice(states[:-1]), strict=True)]
            ends = [
                _recurrent_layer(net, read[:: 1 - 2 * way], kind, units)[:: 1 - 2 * way]
                for way in range(ways)
            ]
            states.append([tf.concat(pair, 1) for pair in zip(*ends, strict=True)] if ends[1:] else ends[0])
    top = tf.stack(states[-1], 1)
    if attends:  # step by step, as decoders do
        keys = net.dense(top, top.shape[-1])
        scores = [tf.nn.softmax(tf.reduce_sum(keys * query[:, tf.newaxis], 2)) for query in states[-1]]
        read = [tf.reduce_sum(top * score[..., tf.newaxis], 1) for score in scores]
        top = tf.concat([top, tf.stack(read, 1)], 2)
    return net.dense(top, vocabulary)


def _recurrent_layer(net: Net, words: list[tf.Tensor], kind: str, width: int) -> list[tf.Tensor]:
    """Outputs [batch, width] of all steps of time."""
    batch, inputs = words[0].shape
    widths = (_GATES[kind] * width, width) if kind == "gru" else (_GATES[kind] * width,)
    weights = [(net.weight(inputs + width, outputs), net.weight(outputs)) for outputs in widths]
    h = c = tf.zeros([batch, width])
    outputs = []
    for x in words:
        gates = tf.nn.bias_add(tf.concat([x, h], 1) @ weights[0][0], weights[0][1])
        if kind == "plain":
            h = tf.tanh(gates)
        else:
            reset, second, *rest = tf.split(gates, _GATES[kind], 1)
            gate = tf.sigmoid(reset)
            if kind == "lstm":
                c = tf.sigmoid(second + 1.0) * c + gate * tf.tanh(rest[0])
                h = tf.sigmoid(rest[1]) * tf.tanh(c)
            else:
                if kind == "gru":
                    reset = tf.concat([x, tf.sigmoid(second) * h], 1)
                    second = tf.nn.bias_add(reset @ weights[1][0], weights[1][1])
                h += gate * (tf.tanh(second) - h)
        outputs.append(h)
    return outputs


def transformer(
    net: Net,
    x: tf.Tensor,
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    vocabulary: int,
    is_parallel: bool,
    is_gated: bool,
    experts: int = 0,
    **_: Any,
) -> tf.Tensor:
    """Next words, by blocks with attention and dense layers in turn or in parallel; each second one with experts."""
    activation, is_causal = net.choice(_ACTIVATIONS), bool(net.random.random() < 0.5)

    def dense(y: tf.Tensor) -> tf.Tensor:
        inner = net.dense(y, hidden * width, activation)
        return net.dense(inner * net.dense(y, hidden * width) if is_gated else inner, width)

    def mixture(y: tf.Tensor) -> tf.Tensor:
        """Each expert takes a share of the tokens, the ones that a router rates highest (Zhou et al. 2022)."""
        flat, parts = tf.reshape(y, [-1, width]), []
        tokens = flat.shape[0]
        shares = tf.transpose(tf.nn.softmax(net.dense(flat, experts)))
        for share, places in zip(*map(tf.unstack, tf.math.top_k(shares, tokens // experts)), strict=True):
            outputs = dense(tf.gather(flat, places)) * share[:, tf.newaxis]
            parts.append(tf.math.unsorted_segment_sum(outputs, places, tokens))
        return tf.reshape(tf.add_n(parts), y.shape)

    x = tf.gather(net.weight(vocabulary, width), x) + net.weight(x.shape[1], width)
    for number in range(depth):
        with tf.name_scope(f"block_{number}"):
            inner, y = mixture if experts and number % 2 == 0 else dense, net.norm(x)
            if is_parallel:
                x = tf.add_n([x, net.attention(y, heads, is_causal), inner(y)])
            else:
                x += net.attention(y, heads, is_causal)
                x += inner(net.norm(x))
    return net.dense(net.norm(x), vocabulary)


def towers(
    net: Net, x: Any, depth: int, towers: int, width: int, vocabulary: int, mixes: int, **_: Any
) -> tf.Tensor:
    """Classes of rows and ids, by towers of several widths that read each other each ``mixes`` layers."""
    rows, ids = x
    widths = [int(width * net.choice((0.25, 0.5, 1, 2))) for _ in range(towers)]
    ends = [net.dense(rows, units) for units in widths]
    for tower, units in enumerate(widths):
        if net.random.random() < 0.5:
            ends[tower] += tf.reduce_mean(tf.gather(net.weight(vocabulary, units), ids), 1)
    for level in range(depth):
        partners = net.random.permutation(towers) if level % mixes == mixes - 1 else range(towers)
        activation, before = net.choice(_ACTIVATIONS), ends
        with tf.name_scope(f"level_{level}"):
            ends = [
                net.dense(
                    tf.concat([end, before[partner]], 1) if partner != tower else end, units, activation
                )
                for tower, (end, units, partner) in enumerate(zip(before, widths, partners, strict=True))
            ]
            if level % 2:
                ends = [end + old for end, old in zip(ends, before, strict=True)]
    return net.dense(net.dense(tf.concat(ends, 1), width, tf.nn.relu), _CLASSES)


def message_passing(net: Net, x: Any, depth: int, width: int, attends: bool, **_: Any) -> tf.Tensor:
    """Classes of the nodes of a graph, by rounds of messages along edges of several kinds."""
    h, edges = x
    kinds = [tf.unstack(ends) for ends in tf.unstack(edges)]
    for number in range(depth):
        with tf.name_scope(f"round_{number}"):
            heard = []
            for source, target in kinds:
                sent = tf.gather(net.dense(h, width), source)
                if attends:
                    sent *= tf.gather(tf.sigmoid(net.dense(h, 1)), target)
                heard.append(tf.math.unsorted_segment_sum(sent, target, h.shape[0]))
            news = tf.concat([h, tf.add_n(heard)], 1)
            h = net.norm(h + net.dense(news, width, net.choice(_ACTIVATIONS)))
    return net.dense(h, _CLASSES)


def build(family: str, parts: int, seed: int, optimizer: str, **settings: Any) -> Item:
    """Traces a training step of a family, with its batch in parts where there are several; no variable has a value."""
    begin(seed)
    net, update, (network, examples, _) = Net(seed), optimizer_named(optimizer), FAMILIES[family]

    @tf.function(autograph=False)
    def step(x: Any, y: tf.Tensor) -> tf.Tensor:
        logits = network(net, x, **settings)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        with outside_functions():
            update.build(net.variables)
        gradients = [tf.convert_to_tensor(gradient) for gradient in tf.gradients(loss, net.read)]
        update.apply_gradients(zip(gradients, net.variables, strict=True))
        return loss

    with gradients_forgotten():  # nobody else has the function
        return split(Item.from_function(step, *examples(**settings), name=family), parts).without_values()


@dataclasses.dataclass(frozen=True)
class Size:
    """Estimates of a program in one part with plain SGD."""

    ops: float
    variables: float
    weights: float  # numbers in the variables
    activations: float  # numbers that the backward pass waits for
    split: float  # ops in P parts are P times as many, times this


def _size_of_cells(depth: int, nodes: int, width: int, batch: int, size: int) -> Size:
    units, pixels = depth * (nodes + 1), batch * size**2 / 4
    return Size(45 * units, 3.7 * units, 20 * units * width**2, 2 * units * pixels * width, 1.2)


def _size_of_u_net(depth: int, levels: int, width: int, batch: int, size: int, **_: bool) -> Size:
    units, widest = depth * (2 * levels + 1), width << levels
    return Size(46 * units, 3 * units, 36 * depth * widest**2, 16 * depth * batch * size**2 * width, 1.15)


def _size_of_recurrent(
    depth: int, length: int, width: int, batch: int, vocabulary: int, cell: str, ways: int, attends: bool
) -> Size:
    layers = depth * (1 if ways == 1 else 2.4)
    ops = length * (_CELL_OPS[cell] * layers + 90 * attends) + 120
    weights = width * (5 * ways**2 * width * depth + 4 * vocabulary)
    return Size(ops, 3 * layers, weights, length * batch * (12 * layers * width + 3 * vocabulary), 0.82)


def _size_of_transformer(
    depth: int, width: int, batch: int, vocabulary: int, experts: int = 0, **others: int
) -> Size:
    length, hidden, is_gated = others["length"], others["hidden"], others["is_gated"]
    layers = (depth + 1) // 2 * experts
    dense = depth // 2 + layers if experts else depth
    tokens = depth * (width * (14 + 4 * hidden) + 3 * others["heads"] * length) + 3 * vocabulary
    return Size(
        390 * depth + 130 * layers + 150,
        depth * (12 - 2 * others["is_parallel"]) + dense * (4 + 2 * is_gated) + 6,
        width * (width * (4 * depth + dense * hidden * (2 + is_gated)) + 2 * vocabulary),
        batch * length * tokens,
        0.7,
    )


def _size_of_towers(depth: int, towers: int, width: int, batch: int, vocabulary: int, **_: int) -> Size:
    layers = (depth + 1) * towers
    weights = width * (layers * width + towers * vocabulary)
    return Size(41 * layers, 2.2 * layers, weights, 4 * layers * batch * width, 0.7)


def _size_of_message_passing(
    depth: int, relations: int, width: int, batch: int, neighbours: int, attends: bool
) -> Size:
    ops, variables = 120 + relations * (128 if attends else 70), 4 + relations * (4 if attends else 2)
    held = batch * width * (8 + relations * (1 + 3 * neighbours))
    return Size(depth * ops, depth * variables, depth * (relations + 2) * width**2, depth * held, 0.55)


def _images(batch: int, size: int, **_: Any) -> tuple:
    return image_batch(batch, size, _CLASSES, 0)


def _pixels(batch: int, size: int, **_: Any) -> tuple:
    return _images(batch, size)[0], tf.zeros([batch, size, size], tf.int32)


def _words(batch: int, length: int, vocabulary: int, **_: Any) -> tuple:
    return sentence_batch(batch, length, vocabulary, 0)


def _rows(batch: int, width: int, vocabulary: int, **_: Any) -> tuple:
    return (tf.zeros([batch, width]), _words(batch, _IDS, vocabulary)[0]), tf.zeros([batch], tf.int32)


def _graph(batch: int, width: int, relations: int, neighbours: int, **_: Any) -> tuple:
    edges = np.random.default_rng(0).integers(batch, size=(relations, 2, neighbours * batch), dtype=np.int32)
    return (tf.zeros([batch, width]), tf.constant(edges)), tf.zeros([batch], tf.int32)


# Family -> network, what it is called with, and its size.
FAMILIES: Mapping[str, tuple[Callable[..., tf.Tensor], Callable[..., tuple], Callable[..., Size]]] = {
    "cells": (cells, _images, _size_of_cells),
    "u_net": (u_net, _pixels, _size_of_u_net),
    "recurrent": (recurrent, _words, _size_of_recurrent),
    "transformer": (transformer, _words, _size_of_transformer),
    "mixture_of_experts": (transformer, _words, _size_of_transformer),
    "towers": (towers, _rows, _size_of_towers),
    "message_passing": (message_passing, _graph, _size_of_message_passing),
}
