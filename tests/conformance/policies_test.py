"""What holds of every policy: those of ``descriptors.POLICIES``, one for each learned method."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.descriptors import POLICIES, PolicyDescriptor
from tests.tf_placer.problem.small_problems import problem_of, random_problem
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
    drawn = policy.draw(problem, seed)
    for row in drawn.placements:
        problem.check_legal(row)
    assert len(np.unique(drawn.placements, axis=0)) > 1
    assert np.isfinite(drawn.log_prob).all() and (drawn.log_prob < 0).all()
    np.testing.assert_allclose(drawn.scored, drawn.log_prob, rtol=1e-4, atol=1e-5)


@pytest.mark.medium
@EVERY
def test_draws_are_a_matter_of_the_seed(policy: PolicyDescriptor) -> None:
    problem = random_problem(np.random.default_rng(1), 12, 3)
    one, same, other = (policy.draw(problem, seed).placements for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@EVERY
def test_all_that_can_be_decided_is_certain_together(policy: PolicyDescriptor) -> None:
    assert policy.whole(problem_of([1, 2, 3], [(0, 1), (1, 2)], 9)) == pytest.approx(1, rel=1e-5)
