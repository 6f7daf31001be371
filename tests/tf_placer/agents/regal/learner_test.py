"""Runs of a genetic algorithm teach the policy that draws for it."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.regal import RegalConfig, RegalLearner, RegalPolicy, draw_actions, score

PROBLEM = branches_problem(3, 4)
CONFIG = RegalConfig(
    population=20, generations=2, mutants=0.1, keep_elites=False, hidden=8, learning_rate=0.03
)


def learner_of(seed=3, problem=PROBLEM, policy=None, **changes):
    return RegalLearner(problem, dataclasses.replace(CONFIG, **changes), None, seed, policy)


def on_device_1(rows):
    """Best where everything is on device 1."""
    return 1.0 + np.mean(rows == 0, axis=1)


def generation(learner, evaluate=on_device_1):
    rows = learner.propose()
    learner.learn(rows, evaluate(rows))
    return rows


def share_of_policy(learner):
    """How much of what the policy draws is on device 1."""
    keys, _ = learner._draw(200)
    return float(np.mean(learner._devices(keys) == 1))


def test_a_run_is_so_many_generations():
    learner = learner_of(generations=3)
    sizes = [len(generation(learner)) for _ in range(6)]
    assert sizes == [20, 16, 16, 20, 16, 16]  # 20 without 4 elites, and anew
    assert learner.state()["runs"] == 2


def test_the_first_run_is_plain_and_the_policy_draws_after_it():
    learner = learner_of()
    before = [variable.numpy() for variable in learner.policy.variables]
    rows = [generation(learner) for _ in range(2)]
    assert learner.state()["reference_s"] == on_device_1(np.concatenate(rows)).min()
    for variable, value in zip(learner.policy.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    generation(learner)
    assert len(learner.state()["actions"]) == 20
    generation(learner)
    assert any((v.numpy() != b).any() for v, b in zip(learner.policy.variables, before, strict=True))


def test_elites_may_live_on_in_the_next_run():
    learner = learner_of(keep_elites=True)
    sizes = [len(generation(learner)) for _ in range(5)]
    assert sizes == [20, 16, 16, 16, 16]  # two mutants in each
    assert len(learner.state()["actions"]) == 2
    keys = learner.state()["keys"]
    assert on_device_1(learner._plans.rows(0, learner._devices(keys)))[0] == learner.state()["times"][0]


@pytest.mark.medium
def test_it_learns():
    learner = learner_of(seed=4, generations=1)
    generation(learner)
    before = share_of_policy(learner)
    for _ in range(25):
        generation(learner)
    assert before < 0.6
    assert share_of_policy(learner) > 0.75


@pytest.mark.slow
def test_shuffled_times_teach_nothing():
    generator = np.random.default_rng(0)
    learner = learner_of(generations=1)
    for _ in range(26):
        generation(learner, lambda rows: generator.permutation(on_device_1(rows)))
    assert share_of_policy(learner) < 0.65


def test_a_run_of_the_paper_has_one_action():
    config = RegalConfig(preset="paper", population=20, generations=2, hidden=8)
    learner = RegalLearner(PROBLEM, config, None, 3, None)
    for _ in range(3):
        generation(learner)
    actions = learner.state()["actions"]
    assert len(actions) == 20 and len(np.unique(actions, axis=0)) == 1
    learner.propose()  # its mutants are of the same one
    mutants = learner._offered_actions[:2]
    np.testing.assert_array_equal(mutants, actions[:2])


def test_what_is_taught_is_what_was_drawn():
    learner = learner_of()
    for _ in range(3):
        generation(learner)
    choices = learner.policy(learner._inputs)
    actions = draw_actions(choices, 5, np.random.default_rng(0))
    by_hand = sum(
        np.take_along_axis(
            np.log(np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(axis=-1, keepdims=True))[np.newaxis],
            actions[..., [number]],
            axis=-1,
        ).sum(axis=(1, 2, 3))
        for number, logits in enumerate(choices)
    )
    np.testing.assert_allclose(score(choices, actions), by_hand, rtol=1e-4)


def test_weights_go_on_with_another_problem():
    policy = RegalPolicy(hidden=8, rounds=1, seed=1)
    for problem in (PROBLEM, branches_problem(5, 2, num_devices=3)):
        learner = learner_of(problem=problem, policy=policy)
        for _ in range(4):
            generation(learner)
        assert learner.policy is policy


def test_a_learner_is_its_state():
    first = learner_of()
    for _ in range(5):  # in the middle of the second run with the policy
        generation(first)
    state = first.state()
    expected = [generation(first) for _ in range(4)]
    second = learner_of(seed=4)
    second.restore(state)
    for rows in expected:
        np.testing.assert_array_equal(generation(second), rows)


def test_where_nothing_runs_it_goes_on():
    learner = learner_of()
    for _ in range(6):
        generation(learner, lambda rows: np.full(len(rows), np.inf))
    assert all(np.isfinite(variable.numpy()).all() for variable in learner.policy.variables)
