"""An expert's plan: a layer a device, what has no layer with its neighbours, runs of equal work where nobody said."""

import dataclasses

import numpy as np

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.planners.plain import expert

CHAIN = [(i, i + 1) for i in range(5)]


def staged(problem, stages):
    return dataclasses.replace(problem, stage_of_op=np.array(stages))


def test_a_layer_a_device():
    problem = staged(problem_of([9, 1, 1, 1, 1, 9], CHAIN), [0, 0, 0, 0, 1, 1])
    assert expert(problem).tolist() == [[0, 0, 0, 0, 1, 1]]


def test_more_layers_than_devices_are_cut_into_runs_of_equally_many():
    problem = problem_of([1] * 6, CHAIN, cluster=small_cluster(3))
    assert expert(staged(problem, [0, 1, 2, 3, 4, 5])).tolist() == [[0, 0, 1, 1, 2, 2]]
    # Stages that no op has do not count: 7 and 9 are the second and the third of three.
    assert expert(staged(problem, [2, 2, 7, 7, 9, 9])).tolist() == [[0, 0, 1, 1, 2, 2]]


def test_fewer_layers_than_devices_leave_devices_idle():
    problem = staged(problem_of([1] * 6, CHAIN, cluster=small_cluster(4)), [0, 0, 0, 1, 1, 1])
    # Two stages in [0, 1): the first at 0, the second at 1/2, of four devices.
    assert expert(problem).tolist() == [[0, 0, 0, 2, 2, 2]]


def test_what_has_no_stage_goes_where_it_shares_the_most_bytes():
    # Op 2 gets 5 bytes of op 0 and 7 of op 1; op 3 hears from op 2 alone.
    problem = problem_of([1] * 4, [(0, 2), (1, 2), (2, 3)], [5, 7, 1])
    assert expert(staged(problem, [0, 1, -1, -1])).tolist() == [[0, 1, 1, 1]]
    problem = problem_of([1] * 4, [(0, 2), (1, 2), (2, 3)], [7, 5, 1])
    assert expert(staged(problem, [0, 1, -1, -1])).tolist() == [[0, 1, 0, 0]]


def test_without_stages_the_order_is_cut_into_runs_of_equal_work():
    # 12 in all: halves end after the first four ops of 1, 1, 1 and 3.
    assert expert(problem_of([1, 1, 1, 3, 3, 3], CHAIN)).tolist() == [[0, 0, 0, 0, 1, 1]]


def test_slow_devices_stay_idle():
    problem = staged(problem_of([[5, 1]] * 6, CHAIN), [0, 0, 0, 1, 1, 1])
    assert expert(problem).tolist() == [[1] * 6]


def test_what_does_not_fit_is_moved():
    cluster = sized_cluster([30, 60])
    problem = staged(problem_of([1] * 6, CHAIN, cluster=cluster, resident_bytes=10), [0, 0, 0, 0, 1, 1])
    rows = expert(problem)
    assert len(rows)
    for row in rows:
        assert np.bincount(row, minlength=2)[0] <= 3
        assert row[-2:].tolist() == [1, 1]


def test_nothing_fits():
    problem = problem_of([1] * 6, CHAIN, cluster=sized_cluster([20, 30]), resident_bytes=10)
    assert expert(staged(problem, [0, 0, 0, 1, 1, 1])).shape == (0, 6)
