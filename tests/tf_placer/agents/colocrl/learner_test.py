"""ColocRL: its inputs and losses by hand, what an untrained policy draws, and it learns."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import small_learner
from tests.tf_placer.problem.small_problems import branches_problem, problem_of
from tf_placer.agents.colocrl import (
    ColocRlConfig,
    ColocRlPolicy,
    colocated_groups,
    colocrl_inputs,
    group_embeddings,
)
from tf_placer.agents.features import NUM_TYPES, type_numbers

# The paper's loss, small.
PLAIN = {"preset": "paper", "elite_share": 0.0, "entropy_start": 0.0, "controllers": 2}


def drawn(learner, reward, valid):
    """The learner's own loss of a draw, and the draw's log-probabilities."""
    inputs = learner._of_problem.inputs
    decoded = learner.policy.score(inputs, learner.policy.sample(inputs, 6, tf.constant([3, 4])).actions[0])
    loss = float(learner._loss(decoded, tf.constant(reward), tf.constant(valid)))
    return loss, decoded.log_prob()[0].numpy()


REWARD = np.array([-1.0, -10.0, -2.0, -10.0, -1.5, -3.0], np.float32)
VALID = REWARD > -10


def test_the_loss_is_the_papers_over_exactly_the_executed_actions():
    learner = small_learner("colocrl", **PLAIN)
    # Before any step the baseline is the failing signal, so what fails teaches nothing yet and what runs is raised.
    loss, log_prob = drawn(learner, REWARD, VALID)
    assert loss == pytest.approx(-np.mean((REWARD + 10) * log_prob), rel=1e-4)
    np.testing.assert_allclose(learner.baseline.average, [0.9 * -10 + 0.1 * REWARD.mean(), -10], rtol=1e-5)
    learner.updates.assign(1)  # the other controller's turn: its baseline has not moved
    again, _ = drawn(learner, REWARD, VALID)
    assert again == pytest.approx(loss, rel=1e-5)
    learner.updates.assign(4)  # the first one's again: its baseline has
    moved, _ = drawn(learner, REWARD, VALID)
    baseline = 0.9 * -10 + 0.1 * REWARD.mean()
    assert moved == pytest.approx(-np.mean((REWARD - baseline) * log_prob), rel=1e-4)


def test_after_the_steps_of_the_rule_what_fails_does_not_teach():
    learner = small_learner("colocrl", **PLAIN, valid_only_after=5000)
    learner.baseline._started.assign([False, False])  # baselines begin at their first means
    learner.updates.assign(4999)
    loss, log_prob = drawn(learner, REWARD, VALID)
    assert loss == pytest.approx(-np.mean((REWARD - REWARD.mean()) * log_prob), rel=1e-4)
    learner.updates.assign(5000)
    loss, log_prob = drawn(learner, REWARD, VALID)
    mean = REWARD[VALID].mean()  # the other controller's first
    assert loss == pytest.approx(-np.mean(np.where(VALID, REWARD - mean, 0) * log_prob), rel=1e-4)
    np.testing.assert_allclose(learner.baseline.average, [mean, REWARD.mean()], rtol=1e-5)


def test_ours_also_moves_to_the_best():
    learner = small_learner("colocrl", entropy_start=0.0, elite_share=0.34)  # two of six
    loss, log_prob = drawn(learner, REWARD, VALID)
    advantage = (REWARD - REWARD.mean()) / REWARD.std()
    best = (log_prob[0] + log_prob[4]) / 2  # of -1 and -1.5
    assert loss == pytest.approx(-np.mean(advantage * log_prob) - best, rel=1e-4)


CONFIG = ColocRlConfig(max_groups=6, hidden=8, largest_share=0.3)


@pytest.fixture(scope="module")
def policy():
    return ColocRlPolicy(CONFIG, seed=5, groups=5)


def test_it_begins_as_it_is_asked_to(policy):
    problem = branches_problem(4, 4)
    share = {}
    for probability in (0.0, 0.9):
        config = ColocRlConfig(max_groups=6, hidden=8, largest_share=0.3, start_probability=probability)
        groups = colocated_groups(problem, config)
        inputs = colocrl_inputs(problem, groups, config, groups.legal.argmax(axis=1))
        drawn = policy.sample(inputs, 200, tf.constant([11, 12])).actions
        share[probability] = float(tf.reduce_mean(tf.cast(drawn == 0, tf.float32)))
    # Log-odds of untrained weights move by up to about 1.4, as with HDP's; 1,000 draws add up to 0.05.
    assert share[0.9] > 0.64
    assert 1 / (1 + math.exp(1.4)) - 0.05 < share[0.0] < 1 / (1 + math.exp(-1.4)) + 0.05


def test_the_adjacency_is_as_wide_as_what_the_weights_are_for():
    problem = branches_problem(4, 4)
    groups = colocated_groups(problem, CONFIG)
    configs = [dataclasses.replace(CONFIG, max_groups=most) for most in (12, 2)]
    inputs = [colocrl_inputs(problem, groups, config, np.zeros(groups.count, int)) for config in configs]
    assert np.diff([each.embeddings.shape[1] for each in inputs]) == groups.count - 12


@pytest.fixture(scope="module")
def problem():
    # 0 -> 1 -> 2, 0 -> 2: unit 0 by itself, 1 and 2 in the order of the chain.
    problem = problem_of([10, 30, 20], [(0, 1), (1, 2), (0, 2)], 9, resident_bytes=[0, 100, 300])
    shapes = (((4, 3),), ((7,), (2, 2, 2, 2, 2)), ())
    return dataclasses.replace(problem, op_types=("MatMul", "Relu", "Relu"), output_shapes=shapes)


@pytest.fixture(scope="module")
def groups(problem):
    return colocated_groups(problem, ColocRlConfig(colocate=False))


def test_types_sizes_and_neighbors(problem, groups):
    rows = group_embeddings(problem, groups, 5, work_features=False)
    assert rows.shape == (3, NUM_TYPES + 16 + 6 + 5) and rows.dtype == np.float32
    types, sizes, work, adjacency = np.split(rows, [NUM_TYPES, NUM_TYPES + 16, NUM_TYPES + 22], axis=1)
    matmul, relu = type_numbers(["MatMul", "Relu"])
    expected = np.zeros_like(types)
    expected[0, matmul] = expected[1, relu] = expected[2, relu] = np.log(2)
    np.testing.assert_allclose(types, expected, rtol=1e-6)
    np.testing.assert_allclose(sizes[0, :4], np.log([5, 4, 1, 1]) / 10, rtol=1e-6)
    np.testing.assert_allclose(sizes[1, :8], np.log([8, 1, 1, 1, 3, 3, 3, 3]) / 10, rtol=1e-6)
    assert not sizes[:, 8:].any() and not sizes[2].any() and not work.any()
    np.testing.assert_array_equal(adjacency, [[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 0, 0]])


def test_work(problem, groups):
    work = group_embeddings(problem, groups, 3, work_features=True)[:, NUM_TYPES + 16 : NUM_TYPES + 22]
    np.testing.assert_allclose(work[:, 0], [1 / 6, 3 / 6, 2 / 6], rtol=1e-6)
    np.testing.assert_allclose(work[:, 1], [0, 0.25, 0.75], rtol=1e-6)
    # Unit 0 makes two tensors of 9 bytes, unit 1 one.
    np.testing.assert_allclose(work[:, 2], np.log10([19, 10, 1]) / 10, rtol=1e-6)
    # A chain: 60 ns, all critical.
    np.testing.assert_allclose(work[:, 3], [0, 10 / 60, 40 / 60], rtol=1e-6)
    np.testing.assert_allclose(work[:, 4], [1, 50 / 60, 20 / 60], rtol=1e-6)
    assert not work[:, 5].any()


def test_a_group_is_its_costliest_op(problem):
    together = dataclasses.replace(
        problem,
        unit_of_op=np.array([0, 1, 1], np.int32),
        resident_bytes=problem.resident_bytes[:2],
        allowed=problem.allowed[:2],
    )
    groups = colocated_groups(together, ColocRlConfig(colocate=False))
    rows = group_embeddings(together, groups, 2, work_features=False)
    assert rows[1, type_numbers(["Relu"])[0]] == pytest.approx(np.log(3))
    np.testing.assert_allclose(rows[1, NUM_TYPES : NUM_TYPES + 2], [np.log(8) / 10, 0], rtol=1e-6)
