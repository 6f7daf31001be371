"""Weights in a file: taken back as they are, or refused in one line that says why."""

import dataclasses

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.weights import PolicyKind, restore_weights, weights_bytes, weights_header
from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes

KIND = PolicyKind("ToyPolicy", {"features": 2, "network": 1}, {"width": 4, "norm": "layer"})


def policy(width=4, value=None):
    """A network whose two layers have weights of one name."""
    made = snt.nets.MLP([width, 3])
    made(tf.zeros([1, 2]))
    for variable in made.trainable_variables:
        if value is not None:
            variable.assign(tf.fill(variable.shape, value))
    return made


@pytest.fixture
def path(tmp_path):
    return tmp_path / "toy.npz"


def test_a_policy_gets_back_what_another_had(path):
    one, other = policy(), policy(value=7.0)
    path.write_bytes(weights_bytes(KIND, one, {"seed": 3}))
    assert restore_weights(path, KIND, other) == {"seed": 3}
    for ours, theirs in zip(one.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_who_made_the_policy_is_no_matter(path):
    class Maker(snt.Module):
        def __init__(self):
            super().__init__()
            self.made = policy(value=2.0)

    made = Maker().made
    assert [v.name for v in made.trainable_variables] != [v.name for v in policy().trainable_variables]
    path.write_bytes(weights_bytes(KIND, made, {}))
    restore_weights(path, KIND, policy())


def test_a_file_of_weights_is_told_from_others(path):
    path.write_bytes(weights_bytes(KIND, policy(), {}))
    assert weights_header(path)["policy"] == KIND.policy
    path.write_bytes(b"no weights")
    with pytest.raises(InputError, match="damaged, or no file of weights"):
        weights_header(path)


def test_equal_weights_are_equal_bytes():
    one, other = policy(value=1.5), policy(value=1.5)
    assert weights_bytes(KIND, one, {}) == weights_bytes(KIND, other, {})


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (
            dataclasses.replace(KIND, policy="OtherPolicy"),
            "has weights of a ToyPolicy; give some of a OtherPolicy",
        ),
        (
            dataclasses.replace(KIND, versions={"features": 3, "network": 1}),
            "was taught with version 2 of features, this program has 3; teach it anew",
        ),
        (
            dataclasses.replace(KIND, versions={"features": 2, "network": 1, "devices": 1}),
            "was taught with version None of devices, this program has 1; teach it anew",
        ),
        (
            dataclasses.replace(KIND, settings={"width": 8, "norm": "layer"}),
            "was taught with width=4, this policy has 8; set width=4",
        ),
        (
            dataclasses.replace(KIND, settings={"width": 4, "norm": "batch"}),
            "was taught with norm=layer, this policy has batch; set norm=layer",
        ),
    ],
)
def test_weights_of_something_else_are_refused(path, kind, line):
    path.write_bytes(weights_bytes(KIND, policy(), {}))
    untouched = policy(value=7.0)
    with pytest.raises(InputError, match=line) as told:
        restore_weights(path, kind, untouched)
    assert str(path) in str(told.value) and "\n" not in str(told.value)
    assert all((variable.numpy() == 7).all() for variable in untouched.trainable_variables)


def test_a_file_that_says_one_size_and_has_another_is_refused(path):
    path.write_bytes(weights_bytes(KIND, policy(width=5), {}))
    with pytest.raises(InputError, match="other weights than a ToyPolicy"):
        restore_weights(path, KIND, policy())


def test_what_is_no_number_is_refused_before_anything_is_changed(path):
    bad = policy(value=1.0)
    bad.trainable_variables[-1].assign([[np.nan] * 3] * 4)
    path.write_bytes(weights_bytes(KIND, bad, {}))
    untouched = policy(value=7.0)
    with pytest.raises(InputError, match="no finite numbers"):
        restore_weights(path, KIND, untouched)
    assert all((variable.numpy() == 7).all() for variable in untouched.trainable_variables)


@pytest.mark.parametrize("header", [{}, {"policy": ["toy"]}, {"policy": "ToyPolicy", "versions": 3}])
def test_a_header_of_anything_is_one_line(path, header):
    path.write_bytes(array_file_bytes("weights of a tf_placer policy", 1, header, {}))
    with pytest.raises(InputError, match=r"toy\.npz"):
        restore_weights(path, KIND, policy())
