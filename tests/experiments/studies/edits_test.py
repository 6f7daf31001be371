"""The network learns what can be learned, and is read as it is written."""

import numpy as np
import pytest

from experiments.studies.edits import scores, told_apart, trained

FEATURES = 34


def test_how_well_moves_are_told_apart() -> None:
    is_gain = np.array([True, False, True, False])
    # Of the four pairs of a gain and another the gain has more in two; then in all; then in none; then ties.
    assert told_apart(np.array([3.0, 2.0, 0.0, -1.0]), is_gain) == 0.75
    assert told_apart(np.array([3.0, 0.0, 2.0, -1.0]), is_gain) == 1.0
    assert told_apart(np.array([0.0, 3.0, 1.0, 4.0]), is_gain) == 0.0
    assert told_apart(np.array([1.0, 1.0, 1.0, 1.0]), is_gain) == 0.5


def test_scores_by_hand() -> None:
    weights = np.zeros((FEATURES + 1) * 16 + 17 * 16 + 17, np.float32)
    weights[0] = 2.0
    weights[FEATURES * 16] = 1.0
    second = (FEATURES + 1) * 16
    weights[second] = 3.0
    weights[second + 16 * 16] = -1.0
    weights[-17], weights[-1] = -2.0, 0.5
    features = np.full((2, FEATURES), 7.0, np.float32)
    features[:, 0] = 0.25, -1.0
    # As in edit_scorer_cc_test.cc: h = relu(2 f + 1), g = relu(3 h - 1), 0.5 - 2 g.
    np.testing.assert_allclose(scores(weights, features), [-6.5, 0.5])


@pytest.fixture(scope="module")
def examples() -> np.ndarray:
    """A move gains where the product of two features is above 0, which neither of them tells; the features are of
    other scales than the network's."""
    random = np.random.default_rng(0)
    features = random.normal(3.0, 0.05, (6000, FEATURES))
    gain = ((features[:, 0] - 3) * (features[:, 1] - 3) > 0) * 0.01
    return np.column_stack([features, gain]).astype(np.float32)


def test_it_learns_what_no_single_feature_tells(examples: np.ndarray) -> None:
    learned, held_out = examples[:5000], examples[5000:]
    is_gain = held_out[:, -1] > 0
    assert told_apart(scores(trained(learned, seed=0), held_out[:, :-1]), is_gain) > 0.9
    shuffled = learned.copy()
    shuffled[:, -1] = np.random.default_rng(1).permutation(shuffled[:, -1])
    assert 0.4 < told_apart(scores(trained(shuffled, seed=0), held_out[:, :-1]), is_gain) < 0.6


def test_a_seed_says_all(examples: np.ndarray) -> None:
    few = examples[:600]
    np.testing.assert_array_equal(trained(few, seed=3), trained(few, seed=3))
    assert (trained(few, seed=3) != trained(few, seed=4)).any()
