"""Transformer-XL's twins train, and what they have read is remembered."""

import numpy as np

from tests.tf_placer.workloads import twins
from tf_placer.workloads.transformer_xl import ROWS

NAMES = ("transformer_xl_2", "transformer_xl_4", "transformer_xl_8")


def test_rows():
    twins.check_rows(ROWS, *NAMES)


def test_the_twin_trains():
    item = twins.check_training(ROWS, "transformer_xl_2_small")
    memories = [v for v in item.variables if v.node.endswith("/memory")]
    assert [v.value.shape for v in memories] == [(4, 16, 64)] * 2
    # Made after steps of training, which have filled it.
    assert all(np.abs(v.value).max() > 0 for v in memories)


def test_the_forward_pass_of_more_layers():
    # A softmax for each layer's attention; that of the words is part of the loss.
    assert twins.check_forward(ROWS, "transformer_xl_4_small").index.op_types.count("Softmax") == 4
