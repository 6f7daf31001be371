"""REGAL: a graph network, the distributions that it chooses, and runs of a genetic algorithm that teach it."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import copy_weights
from tests.tf_placer.problem.small_problems import branches_problem, problem_of
from tf_placer.agents.regal import (
    Choices,
    RegalConfig,
    RegalLearner,
    RegalPolicy,
    draw_actions,
    draw_keys,
    regal_inputs,
    score,
)
from tf_placer.grouper.group_search import GroupedPlans
from tf_placer.grouper.groups import Groups


def inputs_of(problem):
    return regal_inputs(problem, GroupedPlans(problem, 64, 1, one_kind=True).level(0))


@pytest.fixture(scope="module", name="policy")
def fixture_policy():
    return RegalPolicy(hidden=8, rounds=2, seed=1)


def test_weights_are_a_matter_of_the_seed(policy):
    inputs = inputs_of(branches_problem(2, 2))
    same, other = RegalPolicy(8, 2, seed=1)(inputs), RegalPolicy(8, 2, seed=2)(inputs)
    np.testing.assert_array_equal(policy(inputs).means, same.means)
    assert not np.allclose(policy(inputs).means, other.means)


def test_all_weights_have_a_part(policy):
    inputs = inputs_of(branches_problem(2, 3))
    with tf.GradientTape() as tape:
        total = sum(tf.reduce_sum(tf.square(logits)) for logits in policy(inputs))
    gradients = tape.gradient(total, policy.trainable_variables)
    for variable, gradient in zip(policy.trainable_variables, gradients, strict=True):
        assert gradient is not None and np.any(tf.convert_to_tensor(gradient) != 0), variable.name


def test_messages_travel_as_many_edges_as_there_are_rounds():
    problem = branches_problem(1, 6)  # a chain
    policy, inputs = RegalPolicy(hidden=8, rounds=2, seed=1), inputs_of(problem)
    features = inputs.graph.unit_features.numpy()
    features[0] += 10
    changed = policy(inputs._replace(graph=inputs.graph._replace(unit_features=tf.constant(features))))
    moved = np.abs(changed.means - policy(inputs).means).max(axis=(1, 2)) > 1e-6
    # Groups are numbered by their first units: unit 0 is in group 0, two edges reach two units on.
    edges = inputs.edges.numpy()
    near = {0}
    for _ in range(2):
        near |= {int(b) for a, b in edges if a in near} | {int(a) for a, b in edges if b in near}
    assert set(np.flatnonzero(moved)) <= near < set(range(len(moved)))
    assert moved[0]


CHOICES = Choices(
    tf.math.log(tf.constant([[[0.5, 0.125, 0.125, 0.125, 0.125]]])),
    tf.math.log(tf.constant([[[0.25, 0.75]]])),
)


def test_actions_are_drawn_as_often_as_the_logits_say():
    drawn = draw_actions(CHOICES, 4000, np.random.default_rng(0))
    assert drawn.shape == (4000, 1, 1, 2)
    # Five standard deviations of a share of 4000 by 0.5 and by 0.75.
    assert abs((drawn[..., 0] == 0).mean() - 0.5) < 5 * 0.0079
    assert abs((drawn[..., 1] == 1).mean() - 0.75) < 5 * 0.0069


def test_an_action_has_the_probability_of_both_choices():
    scored = score(CHOICES, tf.constant([[[[0, 1]]], [[[4, 0]]]]))
    np.testing.assert_allclose(np.exp(scored), [0.5 * 0.75, 0.125 * 0.25], rtol=1e-5)


def test_keys_have_the_mean_and_the_spread_of_their_action():
    actions = np.tile(np.array([[[[0, 1]], [[2, 0]]]], np.int32), (4000, 1, 1, 1))
    keys = draw_keys(actions, np.random.default_rng(0))[:, :, 0]
    # Mean m and variance m (1 - m) / (size + 1): 0.1 of size 8, and 0.5 of size 2, which is uniform.
    np.testing.assert_allclose(keys.mean(axis=0), [0.1, 0.5], atol=5 * 0.29 / 4000**0.5)
    np.testing.assert_allclose(keys.var(axis=0), [0.1 * 0.9 / 9, 1 / 12], rtol=0.15)


PROBLEM = branches_problem(3, 4)
CONFIG = RegalConfig(population=20, generations=2, mutants=0.1, hidden=8, learning_rate=0.03)


# Twenty of fifty are drawn by the policy.
ONE_GENERATION = {"generations": 1, "population": 50, "mutants": 0.4}


def learner_of(seed=3, problem=PROBLEM, **changes):
    return RegalLearner(problem, dataclasses.replace(CONFIG, **changes), None, seed)


def on_device_1(rows):
    """Best where everything is on device 1."""
    return 1.0 + np.mean(rows == 0, axis=1)


def generation(learner, evaluate=on_device_1):
    rows = learner.propose()
    learner.learn(rows, evaluate(rows))
    return rows


def share_of_policy(learner):
    """How much of what the policy draws is on device 1."""
    keys, _ = learner.draw(200)
    return float(np.mean(keys.argmax(axis=2) == 1))


def test_a_run_is_so_many_generations():
    learner = learner_of(generations=3, preset="paper")
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
    assert len(learner.state()["actions"]) == 2  # its mutants
    generation(learner)
    assert any((v.numpy() != b).any() for v, b in zip(learner.policy.variables, before, strict=True))


def test_elites_may_live_on_in_the_next_run():
    learner = learner_of()
    assert [len(generation(learner)) for _ in range(5)] == [20, 16, 16, 16, 16]  # two mutants in each
    assert len(learner.state()["actions"]) == 2
    keys = learner.state()["keys"]
    assert on_device_1(learner._plans.rows(0, keys.argmax(axis=2)))[0] == learner.state()["times"][0]


@pytest.mark.medium
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_it_learns(seed):
    learner = learner_of(seed=seed, **ONE_GENERATION)
    generation(learner)
    before = share_of_policy(learner)
    for _ in range(25):
        generation(learner)
    assert before < 0.6
    assert share_of_policy(learner) > 0.75


def test_a_run_of_the_paper_has_one_action():
    config = RegalConfig(preset="paper", population=20, generations=2, hidden=8)
    learner = RegalLearner(PROBLEM, config, None, 3)
    for _ in range(3):
        generation(learner)
    actions = learner.state()["actions"]
    assert len(actions) == 20 and len(np.unique(actions, axis=0)) == 1
    learner.propose()  # its mutants are of the same one
    np.testing.assert_array_equal(learner._offered_actions[:2], actions[:2])


def test_what_is_taught_is_what_was_drawn():
    learner = learner_of()
    for _ in range(3):
        generation(learner)
    choices = learner.policy(learner._inputs)
    actions = draw_actions(choices, 5, np.random.default_rng(0))
    by_hand = sum(
        np.take_along_axis(tf.nn.log_softmax(logits).numpy()[np.newaxis], actions[..., [number]], -1).sum(
            (1, 2, 3)
        )
        for number, logits in enumerate(choices)
    )
    np.testing.assert_allclose(score(choices, actions), by_hand, rtol=1e-4)


def test_weights_go_on_with_another_problem():
    policy = RegalPolicy(hidden=8, rounds=RegalConfig.rounds, seed=1)
    for problem in (PROBLEM, branches_problem(5, 2, num_devices=3)):
        learner = learner_of(problem=problem, hidden=8)
        copy_weights(policy, learner.policy)
        for _ in range(4):
            generation(learner)
        policy = learner.policy


def test_where_nothing_runs_it_goes_on():
    learner = learner_of()
    for _ in range(6):
        generation(learner, lambda rows: np.full(len(rows), np.inf))
    assert all(np.isfinite(variable.numpy()).all() for variable in learner.policy.variables)


def test_edges_between_groups_are_added_up():
    # 0 -> 1 is inside of group 0; 1 -> 2 and 0 -> 3 go to group 1, 3 -> 4 to group 2.
    problem = problem_of([1] * 5, [(0, 1), (1, 2), (0, 3), (3, 4)], 99)
    inputs = regal_inputs(problem, Groups.of(problem, np.array([0, 0, 1, 1, 2])))
    np.testing.assert_array_equal(inputs.edges, [[0, 1], [1, 2]])
    # 198 and 99 of 297 bytes that could cross, one more of each.
    np.testing.assert_allclose(inputs.edge_share[:, 0], np.log10([199 / 298, 100 / 298]), rtol=1e-5)


def test_a_problem_without_edges_is_described():
    problem = problem_of([1] * 2, [])
    inputs = regal_inputs(problem, Groups.of(problem, np.arange(2)))
    assert inputs.edges.shape == (0, 2) and inputs.edge_share.shape == (0, 1)
