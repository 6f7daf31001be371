"""WaveNet, a model of raw sound by dilated causal convolutions (van den Oord et al. 2016)."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_placer.workloads.spec import Workload, WorkloadSpec, begin, sentence_batch, step_of, variants

_DILATIONS = 9  # a layer reaches twice as far as the one before, 1 to 256, and then again


def wavenet(
    stacks: int = 2,
    layers: int = 18,
    batch: int = 4,
    length: int = 8192,
    width: int = 128,
    skip_width: int = 256,
    levels: int = 256,
    optimizer: str = "adam",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on int32 [batch, length] samples of sound; a stage is a layer.

    GO, which places it, says only how many stacks and layers there are.

    Args:
      stacks: one after the other, each of ``layers`` dilated layers.
      length: samples, half a second at 16 kHz.
      levels: a sample has.
      training: with gradients and update; else forward pass and loss.
    """
    begin(seed)
    samples = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(levels, width, name="embed_samples")(samples)
    x = keras.layers.Conv1D(width, 2, padding="causal", name="embed_conv")(x)
    names = [f"stack_{stack}_layer_{layer}" for stack in range(stacks) for layer in range(layers)]
    skips = []
    for position, name in enumerate(names):
        dilation = 2 ** (position % layers % _DILATIONS)
        x, skip = _layer(x, dilation, skip_width, name)
        skips.append(skip)
    y = keras.layers.Add(name="head_add")(skips) if len(skips) > 1 else skips[0]
    y = keras.layers.ReLU(name="head_relu")(y)
    y = keras.layers.Conv1D(skip_width, 1, activation="relu", name="head_conv")(y)
    model = keras.Model(samples, keras.layers.Conv1D(levels, 1, activation="softmax", name="head_softmax")(y))
    step = step_of(model, optimizer, training)
    stages = (r"\bembed_", *(rf"\b{name}_" for name in names), r"\b(head|sparse_categorical)_")
    return Workload(step, sentence_batch(batch, length, levels, seed), stages)


def _layer(x: tf.Tensor, dilation: int, skip_width: int, name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """``tanh(filter) * sigmoid(gate)``; returns what goes on, added to what came in, and what is skipped ahead."""
    width = x.shape[-1]
    both = [
        keras.layers.Conv1D(
            width,
            2,
            padding="causal",
            dilation_rate=dilation,
            activation=activation,
            name=f"{name}_{part}",
        )(x)
        for part, activation in (("filter", "tanh"), ("gate", "sigmoid"))
    ]
    y = keras.layers.Multiply(name=f"{name}_gated")(both)
    skip = keras.layers.Conv1D(skip_width, 1, name=f"{name}_skip")(y)
    residual = keras.layers.Conv1D(width, 1, name=f"{name}_residual")(y)
    return keras.layers.Add(name=f"{name}_add")([x, residual]), skip


_SUMMARY = "WaveNet of {} stacks of {} layers, van den Oord et al. 2016; as in GO's table"

ROWS: tuple[WorkloadSpec, ...] = tuple(
    row
    for stacks, layers in ((2, 18), (4, 36))
    for row in variants(
        WorkloadSpec(
            f"wavenet_{stacks}x{layers}",
            wavenet,
            _SUMMARY.format(stacks, layers),
            {"stacks": stacks, "layers": layers},
        ),
        small={"layers": 4, "batch": 2, "length": 128, "width": 16, "skip_width": 16},
    )
)
