"""What placements ask of memory and of links, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.agents.placement_bytes import PlacementBytes, crossing_share, excess_share, placement_bytes


@pytest.fixture
def of_bytes():
    """Units of 40, 30, 20 and 10 bytes, devices that hold 50 and 60; edges of 3, 1 and 6 bytes."""
    return PlacementBytes(
        tf.constant([40.0, 30.0, 20.0, 10.0]),
        tf.constant([50.0, 60.0]),
        tf.constant([[0, 1], [1, 2], [0, 3]]),
        tf.constant([3.0, 1.0, 6.0]),
    )


def test_shares_by_hand(of_bytes):
    placements = tf.constant([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]])
    # 100 - 50; 70 - 50; 50 and 50 fit; 100 - 60; of 100 bytes in all
    np.testing.assert_allclose(excess_share(placements, of_bytes), [0.5, 0.2, 0.0, 0.4])
    # nothing; 1 -> 2 and 0 -> 3, 7 of 10; 0 -> 1, 3 of 10; nothing
    np.testing.assert_allclose(crossing_share(placements, of_bytes), [0.0, 0.7, 0.3, 0.0])


def test_bytes_of_a_problem():
    problem = problem_of(
        [1, 1, 1], [(0, 1), (0, 2)], [5, 7], cluster=small_cluster(2, 1000), resident_bytes=[1, 2, 3]
    )
    found = placement_bytes(problem)
    # As unit 1 runs, both outputs of unit 0 are held.
    assert found.unit_bytes.numpy().tolist() == [1 + 5 + 7, 2, 3]
    assert found.capacity_bytes.numpy().tolist() == [1000, 1000]
    assert found.edges.numpy().tolist() == [[0, 1], [0, 2]]
    assert found.edge_bytes.numpy().tolist() == [5, 7]


def test_a_program_without_bytes_has_no_share():
    found = placement_bytes(problem_of([1], []))
    assert excess_share(tf.constant([[0]]), found).numpy().tolist() == [0]
    assert crossing_share(tf.constant([[0]]), found).numpy().tolist() == [0]
