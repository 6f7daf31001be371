"""Choices that are not there are never made; programs that have eager execution off get what others get."""

import functools
import gc
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.logical_devices import outcomes_of
from tf_placer.base import masked
from tf_placer.base.eager import outside_functions, without_collections

LEGAL = np.array([[True, True, False], [False, True, False]])


@pytest.fixture
def logits():
    # exp: 1, 3 and what is not there; one choice left.
    return masked.masked(tf.math.log([[1.0, 3.0, 100.0], [5.0, 2.0, 7.0]]), LEGAL)


def test_probabilities_by_hand(logits):
    np.testing.assert_allclose(tf.nn.softmax(logits), [[1 / 4, 3 / 4, 0], [0, 1, 0]], rtol=1e-6)
    np.testing.assert_allclose(masked.log_prob(logits, [1, 1]), [math.log(3 / 4), 0], rtol=1e-6)
    assert (masked.log_prob(logits, [2, 0]).numpy() < -1e8).all()
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    np.testing.assert_allclose(masked.entropy(logits), [entropy, 0], rtol=1e-6)


@pytest.mark.parametrize("is_each", [False, True], ids=["draw", "draw_each"])
def test_draws_are_legal_and_follow_the_probabilities(logits, is_each):
    draws, seed = 4000, tf.constant([1, 2])
    many = masked.draw(tf.repeat(logits[tf.newaxis], draws, axis=0), seed)
    many = (masked.draw_each(logits, draws, seed) if is_each else many).numpy()
    assert many.shape == (draws, 2) and set(many[:, 0]) == {0, 1} and set(many[:, 1]) == {1}
    # Five standard deviations of a binomial share.
    assert abs((many[:, 0] == 1).mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / draws)
    assert masked.largest(logits).numpy().tolist() == [1, 1]


def test_gradients_are_finite_and_those_of_the_legal_choices_alone():
    free = tf.Variable([[0.5, -0.2, 9.0], [1.0, 2.0, 3.0]])
    with tf.GradientTape(persistent=True) as tape:
        logits = masked.masked(free, LEGAL)
        entropy, log_prob = masked.entropy(logits)[0], tf.reduce_sum(masked.log_prob(logits, [0, 1]))
    p = 1 / (1 + math.exp(-0.7))  # of the first of two
    # d log p_0 / d logit_0 = 1 - p; dH / d logit_0 = -p (log p + H).
    np.testing.assert_allclose(tape.gradient(log_prob, free), [[1 - p, p - 1, 0], [0] * 3], 1e-5, 1e-7)
    slope = -p * (math.log(p) + float(entropy))
    np.testing.assert_allclose(tape.gradient(entropy, free), [[slope, -slope, 0], [0] * 3], 1e-4, 1e-7)


def test_the_same_logits_score_many_choices(logits):
    scored = masked.scored(logits, tf.constant([[0, 1], [1, 1], [1, 1]])).numpy()
    np.testing.assert_allclose(scored[:, 0], np.log([0.25, 0.75, 0.75]), rtol=1e-5)
    np.testing.assert_array_equal(scored[:, 1], 0)


def test_a_divergence_is_what_is_lost_by_the_other_one(logits):
    other = masked.masked(tf.zeros([2, 3]), LEGAL)
    # One in four and three in four, beside halves; and nothing where there is one choice.
    lost = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    np.testing.assert_allclose(masked.divergence(logits, other), [lost, 0], rtol=1e-5)
    np.testing.assert_array_equal(masked.divergence(logits, logits), [0, 0])


def test_a_share_of_the_probability_is_uniform(logits):
    # Half of 1/4 and 3/4, half of 1/2 each.
    probability = tf.nn.softmax(masked.mixed(logits, LEGAL, 0.5))
    np.testing.assert_allclose(probability, [[3 / 8, 5 / 8, 0], [0, 1, 0]], rtol=1e-6)


OFF = ("graph", "behavior")


@functools.cache
def found(how: str, *methods: str) -> dict:
    return outcomes_of("tests.tf_placer.base.eager_process", how, *methods)


@pytest.mark.medium
@pytest.mark.parametrize("how", OFF)
@pytest.mark.parametrize(
    "methods", [("single", "tabular"), pytest.param(("auto", "hdp", "go"), marks=pytest.mark.slow)]
)
def test_all_is_as_with_eager_execution(how, methods):
    answers = dict(found(how, *methods))
    del answers["refused"]
    assert set(methods) <= set(answers)
    assert answers == found("on", *methods)
    assert answers["state"], "what was off is off again"


@pytest.mark.parametrize("how", OFF)
def test_what_has_its_value_in_a_session_is_refused_in_one_line(how):
    refused = found(how, "single", "tabular")["refused"]
    assert "of a graph, which has no value; give an array or a tf.TensorSpec" in refused["example"]
    assert "place that graph with Item.from_meta_graph" in refused["capture"]
    assert not any("\n" in text for text in refused.values())


def test_a_variable_made_outside_of_functions_is_none_of_theirs():
    traces = []

    @tf.function
    def traced(x: tf.Tensor) -> tf.Tensor:
        traces.append(tf.executing_eagerly())
        with outside_functions():
            made = tf.Variable(2.0)
            traces.append(tf.executing_eagerly())
            made.assign_add(1.0)
            assert float(made) == 3.0
        return x + 1.0

    assert float(traced(tf.constant(1.0))) == 2.0
    assert traced(tf.constant([1.0])).shape == (1,)  # traced again, and it may make a variable again
    assert traces == [False, True] * 2


def test_outside_of_functions_nothing_changes_where_there_is_none():
    before = tf.compat.v1.get_default_graph()
    with outside_functions():
        assert tf.executing_eagerly() and tf.compat.v1.get_default_graph() is before


def test_no_garbage_collection_begins_inside_and_they_go_on_afterwards():
    @without_collections()
    def fail() -> None:
        raise ValueError(gc.isenabled())

    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="False"):
        fail()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled(), "who switched them off finds them off"
    finally:
        gc.enable()
