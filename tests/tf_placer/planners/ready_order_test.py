"""The order that list schedules take ops in: none comes before what it reads, and of the others the first in rank."""

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of, random_problem
from tf_placer.planners.list_schedule import ready_order


def test_of_what_is_ready_the_highest_priority_comes_first():
    problem = problem_of([1] * 5, [(0, 3), (1, 3), (2, 4)], [1] * 3)
    assert ready_order(problem, np.array([1.0, 2.0, 3.0, 9.0, 0.0])).tolist() == [2, 1, 0, 3, 4]


def test_an_op_comes_after_what_it_waits_for_whatever_the_priorities():
    for seed in range(20):
        generator = np.random.default_rng(seed)
        problem = random_problem(generator, 15, 2)
        place = np.argsort(ready_order(problem, generator.standard_normal(15)))
        assert sorted(place.tolist()) == list(range(15))
        assert (place[problem.op_graph.producer] < place[problem.op_graph.consumer]).all()
