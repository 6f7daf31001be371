"""AmoebaNet-A's twin trains."""

import pytest

from tests.tf_placer.workloads import twins
from tf_placer.workloads.amoebanet import ROWS

NAME = "amoebanet_small"


def test_rows():
    twins.check_rows(ROWS, "amoebanet")


@pytest.mark.slow
def test_the_twin_trains():
    item = twins.check_training(ROWS, NAME)
    # A separable operation has two depthwise convolutions. 3 normal cells of 4 and 4 reductions of 4 operations.
    assert item.index.op_types.count("DepthwiseConv2dNative") == 2 * (3 * 4 + 4 * 4)


def test_the_forward_pass_has_the_same_cells():
    # Four pools of 3 by 3 in a reduction and two in a normal cell are maxima or means; one maximum a normal cell,
    # three a reduction.
    assert twins.check_forward(ROWS, NAME).index.op_types.count("MaxPool") == 3 * 1 + 4 * 3
