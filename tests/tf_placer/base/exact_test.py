"""Numbers from outside are taken as they are or refused."""

from __future__ import annotations

import numpy as np
import pytest

from tf_placer.base.arguments import InputError, exact


@pytest.mark.parametrize("value", [[1, 2], [1.0, 2.0], np.array([1, 2], np.uint8), [True, False]])
def test_whole_numbers_of_any_type_are_taken(value):
    taken = exact("x", value, np.int64)
    assert taken.dtype == np.int64
    np.testing.assert_array_equal(taken, np.asarray(value).astype(int))


@pytest.mark.parametrize(
    "value", [[0.003], [float("nan")], [float("inf")], [2**31], np.array([2**63], np.uint64), ["7"], [None]]
)
def test_what_a_cast_would_change_is_refused(value):
    with pytest.raises(InputError, match=r"compute_ns: expected whole numbers that fit int32"):
        exact("compute_ns", value, np.int32)


def test_a_mask_is_of_truth_values():
    assert exact("allowed", [0, 1], bool).tolist() == [False, True]
    with pytest.raises(InputError, match="allowed"):
        exact("allowed", [2], bool)
