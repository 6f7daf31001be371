"""What outputs hold at the fullest moment, by hand and beside the simulator."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.problem import Problem


def test_what_waits_for_the_backward_pass_counts_and_what_is_gone_does_not():
    # Forward 0, 1, 2, whose outputs wait for 5, 4, 3. When 3 runs, those of 0 (10), 1 (20), 2 (40) and 3 (1) are alive.
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4), (0, 5)]
    tensor = [0, 1, 2, 3, 4, 1, 0]
    problem = problem_of([1] * 6, edges, [10, 20, 40, 1, 1, 20, 10], edge_tensor=tensor)
    assert problem.held_bytes().tolist() == [10, 20, 40, 1, 0, 0]


def test_an_output_that_nobody_reads_is_held_while_its_op_runs():
    assert problem_of([1, 1], [], output_bytes=[5, 7]).held_bytes().tolist() == [0, 7]
    assert problem_of([1, 1], []).held_bytes().tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_together_they_are_the_peak_of_a_chain_on_one_device(seed):
    generator = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(11)] + [(i, 11 - i) for i in range(5)]
    problem = problem_of(
        generator.integers(1, 9, 12), edges, generator.integers(1, 99, len(edges)), cluster=small_cluster(1)
    )
    peak = SimulatedEvaluator(problem).evaluate(np.zeros((1, 12))).peak_bytes[0, 0]
    assert problem.held_bytes().sum() == peak


@pytest.mark.parametrize("seed", range(3))
def test_shared_memory_counts_once(seed):
    problem = one_device_problem(np.random.default_rng(seed))
    assert (problem.alias_of_tensor >= 0).any()
    peak = SimulatedEvaluator(problem).evaluate(np.zeros((1, problem.num_units))).peak_bytes[0, 0]
    assert problem.held_bytes().sum() == peak


def one_device_problem(generator: np.random.Generator) -> Problem:
    """A chain with edges back to its beginning, where every second op writes into what the one before it made."""
    edges = [(i, i + 1) for i in range(11)] + [(i, 11 - i) for i in range(5)]
    problem = problem_of(generator.integers(1, 9, 12), edges, 8, cluster=small_cluster(1))
    alias = np.full(len(problem.tensor_producer), -1)
    for tensor, op in enumerate(problem.tensor_producer):
        read = problem.op_graph.tensor[problem.consumer_op == op]
        if op % 2 and len(read):
            alias[tensor] = read[-1]
    return dataclasses.replace(problem, alias_of_tensor=alias)


def test_a_random_problem_holds_no_more_than_all_its_outputs():
    problem = random_problem(np.random.default_rng(0), 15, 3)
    held = problem.held_bytes()
    assert (held >= 0).all() and 0 < held.sum() <= problem.tensor_bytes.sum()
