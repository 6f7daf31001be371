"""WaveNet's twins train."""

import pytest

from tests.tf_placer.workloads import twins
from tf_placer.workloads.wavenet import ROWS


def test_rows():
    twins.check_rows(ROWS, "wavenet_2x18", "wavenet_4x36")


@pytest.mark.slow
def test_the_twin_trains():
    item = twins.check_training(ROWS, "wavenet_2x18_small")
    # Filter, gate, residual and skip of 2 x 4 layers, one before and two after; nothing reads the last residual.
    forward = [op for op in item.index.names if op.endswith("/convolution")]
    assert len(forward) == 4 * 2 * 4 + 3 - 1


def test_the_forward_pass_of_more_stacks():
    item = twins.check_forward(ROWS, "wavenet_4x36_small")
    assert item.index.op_types.count("Tanh") == item.index.op_types.count("Sigmoid") == 4 * 4
