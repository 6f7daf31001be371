"""Every class gets groups, by its share of the units."""

import numpy as np
import pytest

from tf_placer.agents.group_shares import group_shares
from tf_placer.errors import InputError


@pytest.mark.parametrize(
    ("units", "groups", "expected"),
    [
        ([100], 8, [8]),
        ([5], 8, [5]),  # fewer units than groups
        ([0], 8, [1]),  # nothing to decide
        ([1, 1, 1], 3, [1, 1, 1]),
        # One each; of the 6 left 60 : 30 : 3 of 93 are 3.87, 1.94 and 0.19: 3 and 1, and the largest remainders.
        ([61, 31, 4], 9, [5, 3, 1]),
    ],
)
def test_shares_by_hand(units, groups, expected):
    shares = group_shares(np.array(units), groups)
    assert shares.dtype == np.int32 and np.bincount(shares, minlength=len(units)).tolist() == expected
    assert (np.diff(shares) >= 0).all()


def test_no_class_has_more_groups_than_units():
    generator = np.random.default_rng(0)
    for _ in range(100):
        units = generator.integers(1, 20, generator.integers(1, 6))
        groups = int(generator.integers(len(units), 60))
        shares = np.bincount(group_shares(units, groups), minlength=len(units))
        assert shares.sum() == min(groups, units.sum()) and (shares >= 1).all() and (shares <= units).all()


def test_more_classes_than_groups_are_refused():
    with pytest.raises(InputError, match=r"num_groups is 2; .* of 3 kinds.* give at least 3"):
        group_shares(np.array([4, 4, 4]), 2)
