"""What holds of every policy: those of ``descriptors.POLICIES``, one for each learned method."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.descriptors import POLICIES, PolicyDescriptor
from tests.tf_placer.problem.small_problems import branches_problem, problem_of, random_problem, small_cluster
from tf_placer.base.method_spec import Kind
from tf_placer.search import methods

EVERY = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.method)


def test_the_list_is_complete() -> None:
    learned = {spec.name for spec in map(methods.find, methods.BUILT_IN) if spec.kind == Kind.LEARNED}
    assert {policy.method for policy in POLICIES} == learned


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_what_is_drawn_is_legal_and_scored_as_what_it_is(policy: PolicyDescriptor, seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed), 12, 3)  # with masks
    inputs = policy.read(problem)
    network = policy.make(inputs)
    actions, log_prob = policy.sample(network, inputs, tf.constant([seed, 2]))
    placements = np.array(policy.placements(network, inputs, actions))
    for row in placements:
        problem.check_legal(row)
    assert len(np.unique(placements, axis=0)) > 1
    assert np.isfinite(log_prob).all() and (np.array(log_prob) < 0).all()
    scored = policy.score(network, inputs, actions)
    np.testing.assert_allclose(scored, log_prob, rtol=1e-4, atol=1e-5)


@pytest.mark.medium
@EVERY
def test_draws_are_a_matter_of_the_seed(policy: PolicyDescriptor) -> None:
    inputs = policy.read(random_problem(np.random.default_rng(1), 12, 3))
    network = policy.make(inputs)
    first, same, other = (
        policy.placements(network, inputs, policy.sample(network, inputs, tf.constant([seed, 2]))[0])
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


@EVERY
def test_all_that_can_be_decided_is_certain_together(policy: PolicyDescriptor) -> None:
    inputs = policy.read(problem_of([1, 2, 3], [(0, 1), (1, 2)], 9))
    log_prob = policy.score(policy.make(inputs), inputs, policy.every(inputs))
    assert float(tf.reduce_sum(tf.exp(log_prob))) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.is_general], ids=lambda policy: policy.method)
def test_one_set_of_weights_serves_problems_of_any_size(policy: PolicyDescriptor) -> None:
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    cluster, chain = small_cluster(3), [(0, 1), (1, 2), (2, 3)]
    problems = (
        branches_problem(3, 17),  # 53 units, which no width is
        problem_of([1] * 4, chain, 8, cluster=cluster, allowed=allowed),
        problem_of([7], []),
        problem_of([1] * 3, [(0, 1)], cluster=cluster, allowed=np.eye(3, dtype=bool)),  # nothing to decide
    )
    network = policy.make(policy.read(problems[0]))
    sizes = {int(n) for variable in network.variables for n in variable.shape}
    assert problems[0].num_units not in sizes, "weights have no size of a problem"
    before = [variable.numpy() for variable in network.variables]
    for problem in problems:
        inputs = policy.read(problem)
        actions, log_prob = policy.sample(network, inputs, tf.constant([11, 12]))
        for row in np.array(policy.placements(network, inputs, actions)):
            problem.check_legal(row)
        scored = policy.score(network, inputs, actions)
        np.testing.assert_allclose(scored, log_prob, rtol=1e-4, atol=1e-5)
    for variable, value in zip(network.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
