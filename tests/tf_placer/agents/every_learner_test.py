"""What holds of every learner, step by step: proposals stay, failures do no harm, all state is in variables."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    OTHER,
    PROBLEM,
    SMALL,
    moved,
    off_device,
    small_learner,
    update,
    weighted_devices,
    weights,
)
from tf_placer.agents.post import PostConfig

# Changes of small settings, and placements of an update; 0: as many as differ.
LEARNERS = {
    "colocrl": ({"controllers": 2}, 6),
    "go": ({}, 6),
    "hdp": ({}, 16),
    "mars": ({"pretrain_iterations": 0}, 7),
    "placeto": ({}, 0),
    "post": ({"epochs": 1, "smoothing": 1.0}, 64),
    "tabular": ({}, 32),
}
EVERY = pytest.mark.parametrize("method", LEARNERS)


def of_method(method):
    return small_learner(method, **LEARNERS[method][0])


def best_of(learner):
    """The best plans so far and their times, of a learner that keeps any."""
    best = getattr(learner, "best", None)
    return [] if best is None else [*best.decisions, best.runtime_s]


@pytest.fixture(scope="module")
def learner_of():
    """One of each method, for tests that do not mind how far it is."""
    return functools.cache(of_method)


def test_the_list_is_complete():
    assert LEARNERS.keys() == SMALL.keys()


@pytest.mark.medium
@EVERY
def test_a_proposal_stays_until_it_is_learned_from(method, learner_of):
    learner = learner_of(method)
    first, again = learner.propose(), learner.propose()
    count = LEARNERS[method][1] or len(np.unique(first.placements, axis=0))
    assert first.placements.shape == (count, PROBLEM.num_units)
    for ours, theirs in zip(tf.nest.flatten(again), tf.nest.flatten(first), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    before, updates = weights(learner.policy), int(learner.updates)
    update(learner)
    assert moved(learner.policy, before) and int(learner.updates) == updates + 1
    following = learner.propose().placements
    assert following.shape != first.placements.shape or (following != first.placements).numpy().any()


@pytest.mark.medium
@EVERY
def test_calls_are_traced_once(method, learner_of):
    learner = learner_of(method)
    for _ in range(3):
        update(learner)
    names = {
        "go": ("_refined", "learn"),
        "mars": ("propose", "_step"),
        "placeto": ("_episodes", "_step"),
        "post": ("_drawn", "_proximal_step"),
        "tabular": ("learn",),
    }.get(method, ("propose", "learn"))
    for name in names:
        assert getattr(learner, name).experimental_get_tracing_count() == 1, name


@pytest.mark.medium
@EVERY
def test_failures_of_any_cause_leave_numbers_behind(method, learner_of):
    learner = learner_of(method)

    def nothing_runs(placements):
        return tf.fill([len(placements)], np.nan), tf.zeros(len(placements), tf.bool)

    kept = [variable.numpy() for variable in best_of(learner)]
    for _ in range(2):
        update(learner, nothing_runs)
    for variable in learner.policy.trainable_variables:
        assert np.isfinite(variable.numpy()).all(), variable.name
    for variable, value in zip(best_of(learner), kept, strict=True):
        np.testing.assert_array_equal(variable, value, err_msg="what did not run is not the best")


@pytest.mark.medium
@pytest.mark.parametrize("method", ["go", "hdp", "mars"])
def test_how_sure_it_is_changes_nothing(method, learner_of):
    learner = learner_of(method)
    before = [variable.numpy() for variable in learner.variables]
    assert 0 < float(learner.entropy()) <= np.log(2) + 1e-6
    for variable, value in zip(learner.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["go", "hdp", "mars", "placeto"])
def test_weights_go_on_with_another_problem(method):
    first = of_method(method)
    update(first)
    second = small_learner(method, OTHER, policy=first.policy, **LEARNERS[method][0])
    before = weights(first.policy)
    assert second.policy is first.policy
    for row in update(second, off_device(0)).placements.numpy():
        OTHER.check_legal(row)
    assert moved(first.policy, before)


@pytest.mark.slow
@EVERY
def test_a_learner_is_its_variables(method, tmp_path, monkeypatch):
    """Another learner does what the first one goes on to do, once it has its variables."""
    monkeypatch.setattr(PostConfig, "elites", 2 / 64)
    first, second = (small_learner(method, seed=5, **LEARNERS[method][0]) for _ in range(2))
    evaluate = off_device(0) if method == "post" else weighted_devices
    for _ in range(3):
        update(first, evaluate)
    tf.train.Checkpoint(learner=first).write(str(tmp_path / "learner"))
    expected = [update(first, evaluate) for _ in range(3)]
    for variable in second.variables:
        variable.assign(tf.zeros_like(variable))
    tf.train.Checkpoint(learner=second).read(str(tmp_path / "learner")).assert_consumed()
    for proposal in expected:
        np.testing.assert_array_equal(update(second, evaluate).placements, proposal.placements)
    for ours, theirs in zip(second.variables, first.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.name)
    assert method != "post" or int(first.level) == 1, "it reaches the finer level"
