"""Layers of transformers against their formulas."""

import keras
import numpy as np

from tf_placer.workloads.attention import RelativeAttention, SegmentMemory, TiedSoftmax, bert


def test_probabilities_are_those_of_the_embedding():
    embedding = keras.layers.Embedding(3, 2)
    embedding.build(None)
    embedding.set_weights([np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], np.float32)])
    layer = TiedSoftmax(embedding, name="tied")
    # Logits are 0, log 2 and 2 log 3: shares of 1 + 2 + 9.
    given = np.log(np.array([[2.0, 3.0]], np.float32))
    np.testing.assert_allclose(layer(given), [[1 / 12, 2 / 12, 9 / 12]], rtol=1e-6)
    model = keras.Sequential([embedding, layer])
    assert [tuple(weight.shape) for weight in model.trainable_variables] == [(3, 2), (3,)]


def test_it_gives_what_came_before():
    memory = SegmentMemory(3)
    first, second = (np.arange(4, dtype=np.float32).reshape(1, 2, 2) + shift for shift in (1, 10))
    np.testing.assert_array_equal(memory(first, training=True), np.zeros([1, 3, 2]))
    held = np.array([[[0, 0], [1, 2], [3, 4]]], np.float32)
    np.testing.assert_array_equal(memory(second, training=False), held)
    np.testing.assert_array_equal(memory(second, training=True), held)
    np.testing.assert_array_equal(memory(first), [[[3, 4], [10, 11], [12, 13]]])
    assert memory.trainable_variables == []


def test_a_segment_longer_than_the_memory():
    memory = SegmentMemory(1)
    memory(np.array([[[1.0], [2.0]]], np.float32), training=True)
    np.testing.assert_array_equal(memory(np.zeros([1, 2, 1], np.float32)), [[[2.0]]])


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


def test_masked_tokens_are_the_labels():
    (tokens, positions), labels = bert(
        layers=1, width=8, heads=2, batch=3, length=20, vocabulary=50
    ).example_args
    assert positions.shape == labels.shape == (3, 3)  # 15 % of 20
    tokens, positions = tokens.numpy(), positions.numpy()
    assert (np.diff(positions, axis=1) > 0).all()
    np.testing.assert_array_equal(np.take_along_axis(tokens, positions, axis=1), 0)
    assert (tokens == 0).sum() == positions.size
    assert labels.numpy().min() > 0
