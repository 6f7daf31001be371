"""BERT's twins train on the masked tokens alone."""

import numpy as np

from tests.tf_placer.workloads import twins
from tf_placer.workloads.bert import ROWS, bert

NAME = "bert_base_small"


def test_rows():
    twins.check_rows(ROWS, "bert_base", "bert_large")


def test_the_twin_trains():
    assert twins.check_training(ROWS, NAME).index.op_types.count("Erfc") == 2 + 1  # a layer's, and the head's


def test_the_forward_pass_of_the_larger_has_more_layers():
    assert twins.check_forward(ROWS, "bert_large_small").index.op_types.count("Erfc") == 4 + 1


def test_masked_tokens_are_the_labels():
    (tokens, positions), labels = bert(
        layers=1, width=8, heads=2, batch=3, length=20, vocabulary=50
    ).example_args
    assert positions.shape == labels.shape == (3, 3)  # 15 % of 20
    tokens, positions = tokens.numpy(), positions.numpy()
    assert (np.diff(positions, axis=1) > 0).all()
    np.testing.assert_array_equal(np.take_along_axis(tokens, positions, axis=1), 0)
    assert (tokens == 0).sum() == positions.size
    assert labels.numpy().min() > 0
