"""Orders of units and devices, on graphs drawn by hand."""

import dataclasses

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.problem.unit_graph import fastest_devices, order_of_use, slowness


def test_a_chain_is_in_order_whatever_its_numbers():
    problem = problem_of([1] * 4, [(2, 0), (0, 3), (3, 1)])
    assert order_of_use(problem).tolist() == [2, 0, 3, 1]


def test_a_variable_stands_before_its_first_reader_and_not_where_it_is_updated():
    # Ops 0 to 5 are a chain; op 6 is a read that op 3 reads, op 7 its update by op 5; both are one unit.
    problem = problem_of([1] * 8, [*((i, i + 1) for i in range(5)), (6, 3), (5, 7)])
    unit_of_unit = np.array([0, 1, 2, 3, 4, 5, 6, 6])
    variable = dataclasses.replace(
        problem,
        unit_of_op=unit_of_unit[problem.unit_of_op].astype(np.int32),
        resident_bytes=np.zeros(7, np.int64),
        allowed=np.ones((7, 2), bool),
    )
    order = order_of_use(variable).tolist()
    assert order.index(2) < order.index(6) <= order.index(3) + 1 and order.index(6) < order.index(4)
    assert [unit for unit in order if unit != 6] == [0, 1, 2, 3, 4, 5]


def test_units_without_edges_keep_the_order_of_their_ops():
    assert order_of_use(problem_of([1] * 3, [])).tolist() == [0, 1, 2]


def test_the_fastest_device_is_first_also_where_it_cannot_run_everything():
    # Device 0 takes twice as long; device 1 cannot run the last two units, device 2 nothing.
    allowed = np.array([[True, True, False], [True, True, False], [True, False, False], [True, False, False]])
    problem = problem_of([[2000, 1000, 1]] * 4, [], cluster=small_cluster(3), allowed=allowed)
    assert fastest_devices(problem).tolist() == [1, 0, 2]
    # 8000 ns for what takes 1000 twice and, having no choice, 2000 twice.
    np.testing.assert_allclose(slowness(problem), [8001 / 6001, 1.0, np.inf])
