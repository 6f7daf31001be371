"""What the policy is told of a problem."""

import numpy as np

from tests.tf_placer.agents.go.small_go import INPUTS


def test_shares_of_work_and_bytes():
    # Work 100 + 300 + 600 on the fastest devices, and 500 bytes that stay; roots.
    np.testing.assert_allclose(INPUTS.node_numbers[:, 0], np.sqrt([0.1, 0.3, 0.6]), rtol=1e-6)
    np.testing.assert_allclose(INPUTS.node_numbers[:, 1], np.sqrt([0, 0.5, 0.5]), rtol=1e-6)


def test_what_flows_is_a_share_of_what_a_node_reads_or_gives():
    assert INPUTS.reads.pairs.numpy().tolist() == [[1, 0], [2, 0], [2, 1]]
    np.testing.assert_allclose(INPUTS.reads.share, [1, 0.1, 0.9], atol=1e-4)
    assert INPUTS.gives.pairs.numpy().tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose(INPUTS.gives.share, [0.75, 0.25, 1], atol=1e-4)


def test_what_a_node_is_to_each_device():
    np.testing.assert_allclose(INPUTS.load[:, :, 0], [[0.1, 0.1], [0.3, 0.3], [0.6, 6]], rtol=1e-6)
    np.testing.assert_allclose(INPUTS.slowness, [[0, 0], [0, 0], [0, np.log10(6001 / 601)]], atol=1e-6)
    assert INPUTS.load[1, 0, 1] >= 0.25  # of 1,000 bytes


def test_a_placement_is_of_units():
    # Nodes are units here, in the order of use, which is theirs.
    assert INPUTS.placements(np.array([[0, 1, 1]])).numpy().tolist() == [[0, 1, 1]]
