"""Times and shares are shown without nan and negative zeros."""

import math

import numpy as np
import pytest

from tf_placer.quantities import amount, gain, known, milliseconds, percentage


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf, np.float32("nan")])
def test_what_is_not_known_is_a_dash(unknown):
    assert milliseconds(unknown) == percentage(unknown, signed=True) == "-"
    assert "nan" not in gain(unknown) and "inf" not in gain(unknown)
    assert known(unknown) is None


@pytest.mark.parametrize("nothing", [0.0, -0.0, 1e-9, -1e-9, np.float64(-1e-12)])
def test_nothing_has_no_minus(nothing):
    assert milliseconds(nothing) == "0.000 ms"
    assert milliseconds(nothing, signed=True) == "+0.000 ms"
    assert percentage(nothing) == "0.0%"
    assert percentage(nothing, signed=True) == "+0.0%"
    assert gain(nothing) == "no faster and no slower"


def test_amounts_have_the_suffix_that_leaves_fewest_digits():
    numbers = (0, 26, 999, 1500, 999_940, 999_960, 1.813e8, 2e18)
    assert [amount(n) for n in numbers] == ["0", "26", "999", "1.5K", "999.9K", "1.0M", "181.3M", "2000.0P"]


def test_what_is_known_is_rounded():
    assert known(np.float64(0.25)) == 0.25 and type(known(np.float64(0.25))) is float
    assert milliseconds(0.70335949) == "703.359 ms"
    assert milliseconds(-0.00125, signed=True) == "-1.250 ms"
    assert milliseconds(0.0123, digits=1) == "12.3 ms"
    assert percentage(0.1634) == "16.3%"
    assert percentage(-0.0271, signed=True) == "-2.7%"
    assert (gain(0.163), gain(-0.027)) == ("16.3% faster", "2.7% slower")
