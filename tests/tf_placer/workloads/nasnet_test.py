"""NASNet-A's twin trains."""

import pytest

from tests.tf_placer.workloads import twins
from tf_placer.workloads.nasnet import ROWS

NAME = "nasnet_small"


def test_rows():
    twins.check_rows(ROWS, "nasnet")


@pytest.mark.slow
def test_the_twin_trains():
    item = twins.check_training(ROWS, NAME)
    # A separable operation has two depthwise convolutions. 3 normal cells of 5 and 4 reductions of 5 operations.
    assert item.index.op_types.count("DepthwiseConv2dNative") == 2 * (3 * 5 + 4 * 5)


def test_the_forward_pass_has_the_same_cells():
    assert twins.check_forward(ROWS, NAME).index.op_types.count("AvgPool") > 0
