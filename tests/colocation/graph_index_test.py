"""Integer views of graphs, and walks over them."""

import numpy as np
import pytest

from colocation.op_facts import topological_order


def test_a_topological_numbering_is_kept():
    assert topological_order(4, np.array([[0, 2], [1, 2], [0, 3]])).tolist() == [0, 1, 2, 3]


def test_ties_go_to_the_smaller_number():
    # 3 must come before 0; 1 and 2 are free from the start, and smaller than 3.
    assert topological_order(4, np.array([[3, 0]])).tolist() == [1, 2, 3, 0]


def test_nodes_on_and_after_a_cycle_are_missing():
    assert topological_order(4, np.array([[0, 1], [1, 2], [2, 1], [2, 3]])).tolist() == [0]
    assert topological_order(0, np.zeros((0, 2), int)).tolist() == []


@pytest.mark.parametrize("seed", range(10))
def test_every_edge_points_forward(seed):
    generator = np.random.default_rng(seed)
    name = generator.permutation(30)
    edges = np.array(
        [(name[a], name[b]) for a in range(30) for b in range(a + 1, 30) if generator.random() < 0.2]
    )
    order = topological_order(30, np.concatenate([edges, edges[:3]]))  # a repeated edge counts once
    assert sorted(order) == list(range(30)), f"seed {seed}"
    position = np.argsort(order)
    assert (position[edges[:, 0]] < position[edges[:, 1]]).all(), f"seed {seed}"
