"""Prior logits, by hand."""

import math

import numpy as np
import pytest

from tf_placer.agents.graph_inputs import bounded_prior_logits

ALL = np.ones((1, 2), bool)


def probabilities(rows, legal, tanh_constant, temperature):
    weight = np.exp(tanh_constant * np.tanh(rows / temperature)) * legal
    return weight / weight.sum(axis=1, keepdims=True)


def test_the_device_is_drawn_as_often_as_asked():
    legal = np.array([[1, 1, 1], [0, 1, 1]], bool)
    rows = bounded_prior_logits(np.array([2, 1]), legal, 0.8, 5.0, 10.0)
    assert rows.dtype == np.float32
    found = probabilities(rows, legal, 5.0, 10.0)
    np.testing.assert_allclose(found, [[0.1, 0.1, 0.8], [0, 0.8, 0.2]], rtol=1e-5)


def test_the_bound_is_not_passed():
    # C = 1: logits 2 apart at most, so at most sigmoid(2); 0.99 of the way.
    rows = bounded_prior_logits(np.array([0]), ALL, 0.999, 1.0, 3.0)
    assert np.isfinite(rows).all()
    assert probabilities(rows, ALL, 1.0, 3.0)[0, 0] == pytest.approx(1 / (1 + math.exp(-1.98)), rel=1e-5)


def test_nothing_is_leaned_to():
    assert not bounded_prior_logits(np.array([0]), ALL, 0.0, 5.0, 10.0).any()
