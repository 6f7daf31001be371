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
    variables = module.trainable_variables
    weights = tf.random.stateless_normal(network.call(module).shape, seed=[1, 2])

    def total() -> tf.Tensor:
        return tf.reduce_sum(weights * network.call(module))

    with tf.GradientTape() as tape:
        value = total()
    gradients = tape.gradient(value, variables)
    for number, (variable, gradient) in enumerate(zip(variables, gradients, strict=True)):
        assert gradient is not None, f"{variable.name} has no part in what is computed"
        gradient = tf.convert_to_tensor(gradient)
        direction = tf.random.stateless_normal(variable.shape, seed=[number, 3])
        step, before = (
            3e-4,
            tf.identity(variable),
        )  # larger ones cross kinks of ReLU, smaller ones drown in rounding
        sides = []
        for sign in (1.0, -1.0):
            variable.assign(before + sign * step * direction)
            sides.append(float(total()))
        variable.assign(before)
        by_steps = (sides[0] - sides[1]) / (2 * step)
        assert float(tf.reduce_sum(gradient * direction)) == pytest.approx(by_steps, rel=0.02, abs=0.01), (
            variable.name
        )


@EVERY_LOSS
def test_a_loss_has_the_gradient_that_small_steps_say(loss):
    log_prob = tf.Variable([-1.0, -0.5, -2.0, -0.1])
    with tf.GradientTape() as tape:
        value = loss.loss(log_prob, *loss.others)
    assert value.shape == [] and value.dtype == tf.float32
    gradient = tape.gradient(value, log_prob).numpy()
    for sample in range(4):
        sides = []
        for sign in (1.0, -1.0):
            moved = log_prob.numpy()
            moved[sample] += sign * 1e-2
            sides.append(float(loss.loss(tf.constant(moved), *loss.others)))
        assert gradient[sample] == pytest.approx((sides[0] - sides[1]) / 2e-2, abs=1e-3)
    assert gradient[3] == 0, "a sample that may not teach"
    assert np.any(gradient != 0)


@EVERY_LOSS
def test_nothing_but_the_policy_is_differentiated(loss):
    others = [tf.Variable(value) for value in loss.others]
    with tf.GradientTape() as tape:
        value = loss.loss(tf.constant([-1.0, -0.5, -2.0, -0.1]), *others)
    assert all(gradient is None for gradient in tape.gradient(value, others))
