"""What holds of every network and loss: those of ``descriptors``, which are all there are."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

import tf_placer.networks
from tests.conformance.descriptors import LOSSES, NETWORKS, NetworkDescriptor
from tests.oracles.small_steps import assert_gradients
from tf_placer.agents import learner
from tf_placer.agents.features import draw_weights
from tf_placer.agents.hdp_policy import FeedForwardGrouper

EVERY = pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.loss.__name__)


def built(network: NetworkDescriptor, seed: int = 7) -> snt.Module:
    """With weights of a seed; Sonnet makes them at the first call."""
    module = network.make()
    network.call(module)
    draw_weights(module, seed)
    return module


def test_the_list_is_complete():
    found = {FeedForwardGrouper.__name__}
    for module in pkgutil.iter_modules(tf_placer.networks.__path__, tf_placer.networks.__name__ + "."):
        for name, value in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(value, snt.Module) and value.__module__ == module.name and name[0] != "_":
                found.add(name)
    assert {network.name for network in NETWORKS} == found
    public = {name for name, _ in inspect.getmembers(learner, inspect.isfunction) if name.endswith("_loss")}
    assert {loss.loss.__name__ for loss in LOSSES} == public


@pytest.mark.medium
@EVERY
def test_a_graph_computes_what_eager_does(network):
    module = built(network)
    in_graph = tf.function(lambda: network.call(module), autograph=False)()
    np.testing.assert_allclose(in_graph, network.call(module), rtol=1e-5, atol=1e-6)


@pytest.mark.medium
@EVERY
def test_the_seed_says_what_the_weights_are(network):
    one, same, other = (network.call(built(network, seed)).numpy() for seed in (7, 7, 8))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


@pytest.mark.medium
@EVERY
def test_weights_are_saved_and_restored(network, tmp_path):
    one, other = built(network, 7), built(network, 8)
    tf.train.Checkpoint(module=one).write(str(tmp_path / "weights"))
    tf.train.Checkpoint(module=other).read(str(tmp_path / "weights")).assert_consumed()
    np.testing.assert_array_equal(network.call(one), network.call(other))


@EVERY
def test_gradients_are_what_small_steps_say(network):
    module = built(network)
    weights = tf.random.stateless_normal(network.call(module).shape, seed=[1, 2])
    # Larger steps cross kinks of ReLU, smaller ones drown in rounding.
    total = lambda: tf.reduce_sum(weights * network.call(module))  # noqa: E731
    assert_gradients(total, module.trainable_variables, step=3e-4, rel=0.02, abs=0.01)


@EVERY_LOSS
def test_a_loss_has_the_gradient_that_small_steps_say(loss):
    log_prob = tf.Variable([-1.0, -0.5, -2.0, -0.1])
    with tf.GradientTape() as tape:
        value = loss.loss(log_prob, *loss.others)
    assert value.shape == [] and value.dtype == tf.float32
    gradient = tape.gradient(value, log_prob).numpy()
    assert gradient[3] == 0, "a sample that may not teach"
    assert np.any(gradient != 0)
    assert_gradients(lambda: loss.loss(log_prob, *loss.others), [log_prob], step=1e-2, abs=1e-3)


@EVERY_LOSS
def test_nothing_but_the_policy_is_differentiated(loss):
    others = [tf.Variable(value) for value in loss.others]
    with tf.GradientTape() as tape:
        value = loss.loss(tf.constant([-1.0, -0.5, -2.0, -0.1]), *others)
    assert all(gradient is None for gradient in tape.gradient(value, others))
