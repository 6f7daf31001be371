"""Copies of a function draw on from where it was, bit for bit, and begin anew where TensorFlow's kernels do."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from colocation.tensorflow_internals import call_flat
from tf_placer.rewrite.placed_function import copied_function
from tf_placer.rewrite.variables import RandomState, SeededDraws, kept_functions, tell_of_lost_state

_DRAWS: dict[str, Callable[[tf.Tensor], Any]] = {
    **{
        f"{draw.__name__}_{dtype.name}": lambda n, draw=draw, dtype=dtype: draw([n, 3], dtype=dtype, seed=5)
        for draw in (tf.random.uniform, tf.random.normal, tf.random.truncated_normal)
        for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64)
    },
    **{
        f"integers_{dtype.name}": lambda n, dtype=dtype: tf.random.uniform([n], -3, 1000, dtype, seed=5)
        for dtype in (tf.int32, tf.int64)
    },
    "long": lambda n: tf.random.uniform(tf.cast([n, 7000], tf.int64), seed=5),
    "scalar": lambda n: tf.random.normal([], seed=5) + tf.cast(n, tf.float32),
    "dropout": lambda n: tf.nn.dropout(tf.ones([n, 9]), 0.4, seed=5),
}


@tf.function
def _inner(n: tf.Tensor) -> tf.Tensor:
    return tf.random.uniform([n], seed=1)


def _nested(n: tf.Tensor) -> Any:
    """Two calls of one function, a loop and a branch that draw, and a loop within the loop."""
    total = tf.zeros([])
    for k in tf.range(n):
        tf.autograph.experimental.set_loop_options(parallel_iterations=1)
        if k % 2 == 0:
            total += tf.random.normal([], seed=2)
        else:
            total -= tf.reduce_sum(_inner(k))
        for _ in tf.range(k):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)
            total *= tf.random.uniform([], 1.0, 2.0, seed=3)
    return _inner(n), _inner(n), total


_DRAWS["nested"] = _nested
_GENERATOR = tf.random.Generator.from_seed(3)
SIZES = (1, 4, 2, 0, 5, 3, 3, 1)


def concrete_of(draw: Callable[[tf.Tensor], Any]) -> Any:
    return tf.function(draw).get_concrete_function(tf.TensorSpec([], tf.int32))


def run(concrete: Any, size: int) -> list[bytes]:
    return [output.numpy().tobytes() for output in tf.nest.flatten(call_flat(concrete, [tf.constant(size)]))]


@pytest.mark.parametrize("draw", _DRAWS.values(), ids=_DRAWS.keys())
def test_copies_in_turn_draw_what_the_function_draws(draw):
    concrete = concrete_of(draw)
    draws = SeededDraws(concrete)
    assert draws.carried and not draws.lost
    state = RandomState(draws)
    copies = [copied_function(concrete, state) for _ in range(2)]
    drawn = [run(copies[k % 3 % 2], size) for k, size in enumerate(SIZES)]
    assert drawn == [run(concrete, size) for size in SIZES]
    assert len({tuple(one) for one in drawn}) > 5


def test_a_seed_that_is_set_again_begins_anew():
    tf.random.set_seed(7)
    concrete = concrete_of(lambda n: tf.random.uniform([n]))
    state = RandomState(SeededDraws(concrete))
    copy = copied_function(concrete, state)
    before = [run(copy, 2) for _ in range(3)]
    assert [run(copy, 2) for _ in range(3)] != before
    tf.random.set_seed(7)
    state.follow_seeds()
    assert [run(copy, 2) for _ in range(3)] == before == [run(concrete, 2) for _ in range(3)]


@pytest.mark.parametrize(
    ("draw", "types"),
    [
        (lambda n: tf.random.shuffle(tf.range(n), seed=1), ["RandomShuffle"]),
        (lambda n: tf.random.categorical(tf.zeros([1, 4]), n, seed=1), ["Multinomial"]),
        (lambda n: tf.random.gamma([n], 2.0, seed=1), ["RandomGamma"]),
        (lambda n: tf.random.poisson([n], 2.0, seed=1), ["RandomPoissonV2"]),
        (
            lambda n: (
                tf.random.log_uniform_candidate_sampler([[1, 2]], 2, 2, True, 9, seed=1)[0]
                + tf.cast(n, tf.int64)
            ),
            ["LogUniformCandidateSampler"],
        ),
    ],
)
def test_what_only_a_kernel_holds_is_told_where_the_kernel_is_lost(draw, types):
    concrete = concrete_of(draw)
    assert SeededDraws(concrete).lost == types
    with pytest.warns(
        UserWarning, match="it moves: numbers that <lambda> may have drawn with a seed before begin"
    ):
        tell_of_lost_state([concrete, "no function"], "it moves")
    kept_functions.add(concrete)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_of_lost_state([concrete], "it moves")


def of_a_dataset(n: tf.Tensor) -> Any:
    data = (
        tf.data.Dataset.range(9)
        .shuffle(9, seed=2)
        .map(lambda x: x + tf.random.uniform([], 0, 9, tf.int64, 1))
    )
    return data.take(tf.cast(n, tf.int64)).reduce(tf.constant(0, tf.int64), lambda a, b: a + b)


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: tf.random.stateless_uniform([n], [1, 2]),
        lambda n: tf.raw_ops.RandomUniform(shape=[n], dtype=tf.float32),
        lambda n: _GENERATOR.normal([n]),
        of_a_dataset,
    ],
    ids=["stateless", "unseeded", "generator", "dataset"],
)
def test_what_needs_no_state_is_left_alone(draw):
    assert not SeededDraws(concrete_of(draw))


def test_gradients_pass_by_what_is_drawn():
    def draw(x: tf.Tensor) -> tf.Tensor:
        for _ in range(2):
            x = tf.nn.dropout(x, 0.5, seed=4) * _inner(2)
        for _ in tf.range(3):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1, maximum_iterations=3)
            x = tf.nn.dropout(x * x, 0.1, seed=5)
        return x

    concrete = tf.function(draw).get_concrete_function(tf.TensorSpec([2], tf.float32))
    copy = copied_function(concrete, RandomState(SeededDraws(concrete)))
    gradients = []
    for one in (concrete, copy):
        for _ in range(3):
            x = tf.constant([1.0, 2.0])
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = call_flat(one, [x])
            gradients.append(np.stack([y, tape.gradient(y, x)]).tolist())
    assert gradients[:3] == gradients[3:]
