"""The op of local search keeps what it tries, and refuses a network of another size."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.ops.simulator import Chains, ChainSearch, MoveTables
from tf_placer.planners.local_search import LocalSearchConfig, move_tables
from tf_placer.planners.memetic import edit_weights
from tf_placer.problem.problem import Problem

ROUNDS = [40, 30]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return branches_problem(4, 6)


@pytest.fixture(scope="module")
def choosing(problem: Problem) -> MoveTables:
    tables = move_tables(problem, LocalSearchConfig())
    return dataclasses.replace(tables, draws=4, uniform_chance=2**30, scorer_weights=edit_weights())


def search_of(problem: Problem, tables: MoveTables) -> ChainSearch:
    return ChainSearch(SimulatedEvaluator(problem).orders, tables, problem.cluster.capacity_bytes())


def starting(problem: Problem) -> Chains:
    return Chains.starting(problem.everything_on(0), 5, [1, 2])


def test_to_keep_what_is_tried_changes_nothing(problem, choosing):
    search = search_of(problem, choosing)
    expected, _ = search.advance(starting(problem), ROUNDS)
    chains, edits = search.advance(starting(problem), ROUNDS, keep_edits=True)
    for after, same in zip(chains, expected, strict=True):
        np.testing.assert_array_equal(after, same)
    # 34 features and what was gained, of as many rounds as the longest chain makes.
    assert edits.shape == (2, 40, 35)
    assert not edits[:, 0].any(), "the first round times the start"
    assert not edits[1, 30:].any(), "rounds that were not made"
    assert edits[0, 1:, 0].all(), "a move has a unit or more"
    gain = edits[:, :, -1].astype(np.float64)
    assert ((gain >= 0) & (gain < 1)).all()
    assert gain.any(axis=1).all(), "both chains find something"


def test_no_edits_where_no_chain_advances(problem, choosing):
    chains, edits = search_of(problem, choosing).advance(starting(problem), [0, 0], keep_edits=True)
    assert edits.shape == (2, 0, 35)
    np.testing.assert_array_equal(chains.counts, starting(problem).counts)


@pytest.mark.parametrize(
    ("name", "value"), [("draws", 0), ("draws", 1025), ("scorer_weights", np.zeros(848, np.float32))]
)
def test_refuses_a_network_of_another_size(problem, choosing, name, value):
    search = search_of(problem, dataclasses.replace(choosing, **{name: value}))
    with pytest.raises(tf.errors.InvalidArgumentError, match=name):
        search.advance(starting(problem), ROUNDS)
