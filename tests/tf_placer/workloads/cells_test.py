"""Twins of AmoebaNet-A and NASNet-A train."""

import pytest

from tests.tf_placer.workloads import twins
from tf_placer.workloads.cells import AMOEBANET, NASNET


def test_rows_of_amoebanet():
    twins.check_rows(AMOEBANET, "amoebanet")


@pytest.mark.slow
def test_the_twin_of_amoebanet_trains():
    item = twins.check_training(AMOEBANET, "amoebanet_small")
    # A separable operation has two depthwise convolutions. 3 normal cells of 4 and 4 reductions of 4 operations.
    assert item.index.op_types.count("DepthwiseConv2dNative") == 2 * (3 * 4 + 4 * 4)


@pytest.mark.slow
def test_the_forward_pass_of_amoebanet_has_the_same_cells():
    # Four pools of 3 by 3 in a reduction and two in a normal cell are maxima or means; one maximum a normal cell,
    # three a reduction.
    assert twins.check_forward(AMOEBANET, "amoebanet_small").index.op_types.count("MaxPool") == 3 * 1 + 4 * 3


def test_rows_of_nasnet():
    twins.check_rows(NASNET, "nasnet")


@pytest.mark.slow
def test_the_twin_of_nasnet_trains():
    item = twins.check_training(NASNET, "nasnet_small")
    # A separable operation has two depthwise convolutions. 3 normal cells of 5 and 4 reductions of 5 operations.
    assert item.index.op_types.count("DepthwiseConv2dNative") == 2 * (3 * 5 + 4 * 5)


@pytest.mark.slow
def test_the_forward_pass_of_nasnet_has_the_same_cells():
    assert twins.check_forward(NASNET, "nasnet_small").index.op_types.count("AvgPool") > 0
