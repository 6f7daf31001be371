"""Attention by distance, against its formula position by position."""

import keras
import numpy as np

from tf_placer.workloads.relative_attention import RelativeAttention


def slow_attention(layer, x, memory, heads):
    """The formula of the class, one pair of positions after the other, for one row of a batch."""
    w = {weight.name: np.asarray(weight) for weight in layer.weights}
    width = x.shape[1]
    size = width // heads
    past = np.concatenate([memory, x])
    query, (key, value) = x @ w["query"], np.split(past @ w["key_and_value"], 2, axis=1)
    result = np.zeros_like(x)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            scores = []
            for j in range(len(memory) + i + 1):
                distance = len(memory) + i - j
                angle = distance / 10000 ** (np.arange(0, width, 2) / width)
                r = (np.concatenate([np.sin(angle), np.cos(angle)]) @ w["distance"])[part]
                by_content = (query[i, part] + w["content_bias"][head]) @ key[j, part]
                by_distance = (query[i, part] + w["distance_bias"][head]) @ r
                scores.append((by_content + by_distance) / size**0.5)
            shares = np.exp(scores) / np.exp(scores).sum()
            result[i, part] = shares @ value[: len(shares), part]
    return result @ w["output"]


def test_it_is_the_formula():
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, memory = (random.standard_normal((2, length, 8)).astype(np.float32) for length in (5, 3))
    layer = RelativeAttention(heads=2)
    layer(x, memory)
    for weight in layer.weights:  # biases begin with zeros
        weight.assign(random.standard_normal(weight.shape).astype(np.float32))
    expected = [slow_attention(layer, *pair, heads=2) for pair in zip(x, memory, strict=True)]
    np.testing.assert_allclose(layer(x, memory), expected, rtol=1e-3, atol=1e-3)
