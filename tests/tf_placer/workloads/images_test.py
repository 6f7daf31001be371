"""The depth is the number of layers with weights; the twin trains."""

import pytest

from tests.tf_placer.workloads import twins
from tf_placer.base.arguments import InputError
from tf_placer.workloads.images import RESNET, resnet

NAME = "resnet_152_small"


def test_rows():
    twins.check_rows(RESNET, "resnet_152")


@pytest.mark.slow
def test_the_twin_trains():
    item = twins.check_training(RESNET, NAME, steps=8)  # of 152 layers the first few steps make it worse
    # 1 + 16 blocks x 3 + 4 shortcuts; each has a gradient for its weights.
    assert item.index.op_types.count("Conv2D") == 53
    assert item.index.op_types.count("Conv2DBackpropFilter") == 53


@pytest.mark.slow
def test_the_forward_pass_has_the_same_layers():
    assert twins.check_forward(RESNET, NAME).index.op_types.count("Conv2D") == 53


@pytest.mark.parametrize("depth", [34, "50", None])
def test_another_depth_is_told(depth):
    with pytest.raises(InputError, match=r"depth is .*; give 50, 101 or 152"):
        resnet(depth)
