"""Times and shares are shown without nan and negative zeros."""

import math

import numpy as np
import pytest

from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import (
    amount,
    excess,
    gain,
    in_unit,
    known,
    milliseconds,
    parse_size,
    percentage,
    ratio,
    size,
)


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf, np.float32("nan")])
def test_what_is_not_known_is_a_dash(unknown):
    assert milliseconds(unknown) == percentage(unknown, signed=True) == "-"
    assert "nan" not in gain(unknown) and "inf" not in gain(unknown)
    assert known(unknown) is None


@pytest.mark.parametrize("nothing", [0.0, -0.0, 1e-9, -1e-9, np.float64(-1e-12)])
def test_nothing_has_no_minus(nothing):
    assert milliseconds(nothing) == "0 ms"
    assert milliseconds(nothing, signed=True) == "+0 ms"
    assert percentage(nothing) == "0.0%"
    assert percentage(nothing, signed=True) == "+0.0%"
    assert gain(nothing) == "no less time"


def test_amounts_have_the_suffix_that_leaves_fewest_digits():
    numbers = (0, 26, 999, 1500, 999_940, 999_960, 1.813e8, 2e18)
    assert [amount(n) for n in numbers] == ["0", "26", "999", "1.5K", "1M", "1M", "181M", "2000P"]


def test_what_is_known_is_rounded():
    assert known(np.float64(0.25)) == 0.25 and type(known(np.float64(0.25))) is float
    assert milliseconds(0.70335949) == "703 ms"
    assert milliseconds(-0.00125, signed=True) == "-1.25 ms"
    assert percentage(0.1634) == "16.3%"
    assert percentage(-0.0271, signed=True) == "-2.7%"
    assert (gain(0.163), gain(-0.027)) == ("16.3% less time", "2.7% more time")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (12345.6, "12300"), (1168.0, "1170"), (999.6, "1000"), (413.4, "413"), (99.96, "100"),
        (99.94, "99.9"), (10.0, "10.0"), (9.996, "10.0"), (4.8188, "4.82"), (1.0, "1.00"),
        (0.12345, "0.123"), (0.0123, "0.012"), (0.0006, "0.001"), (0.0004, "0"),
        (np.float32(0.25), "0.250"),
    ],
)  # fmt: skip
def test_three_digits_count(number, text):
    assert ratio(number) == text
    assert milliseconds(number / 1e3) == f"{text} ms"
    assert milliseconds(-number / 1e3, signed=True) == f"{'+' if text == '0' else '-'}{text} ms"


def test_shares_and_sizes_have_three_digits():
    assert [percentage(share) for share in (0.0004, 0.163, 0.9994, 0.9999, 2.4, -1.234)] == [
        "0.0%", "16.3%", "99.9%", "100%", "240%", "-123%",
    ]  # fmt: skip
    assert [size(n * 2**20) for n in (1.5, 99.94, 99.96, 512.4)] == [
        "1.5 MiB",
        "99.9 MiB",
        "100 MiB",
        "512 MiB",
    ]


def test_sizes_of_a_column_have_one_unit():
    assert in_unit(1.25 * 2**30, "GiB") == "1.25 GiB" and in_unit(11.354 * 2**30, "GiB") == "11.4 GiB"
    assert in_unit(4_200, "MB") == "0.004 MB"
    assert in_unit(0, "MB") == "0 MB"
    assert in_unit(123_456_789, "MB") == "123 MB"


def test_sizes_have_the_unit_that_leaves_fewest_digits():
    assert [size(n) for n in (0, 1023, 1024, 3.1 * 2**30, 2**20 * 1023.99, 5 * 2**40, None, math.inf)] == [
        "0 B", "1023 B", "1.0 KiB", "3.1 GiB", "1.0 GiB", "5.0 TiB", "-", "-",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("4096", 4096),
        ("7 B", 7),
        ("10GB", 10 * 10**9),
        ("10 GiB", 10 * 2**30),
        ("1.5kb", 1500),
        ("0.1MB", 100_000),  # 0.1 * 10^6 is 100000.00000000001 in floats
        ("2TiB", 2 * 2**40),
    ],
)
def test_a_size_is_read_to_the_byte(text, num_bytes):
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "10 apples", "1e3", "10G", "0", "0.1B", "\u0663GB"])
def test_what_is_no_size_is_told(text):
    with pytest.raises(InputError, match=r"write a number and one of B, KB|give a size above 0"):
        parse_size(text)


def test_the_share_by_which_a_time_is_longer():
    assert excess(3.0, 2.0) == 0.5 and excess(1.0, 2.0) == -0.5
    assert excess(0.0, 2.0) == -1.0
    # Steps of no time.
    assert excess(0.0, 0.0) == 0.0 and excess(1.0, 0.0) == math.inf
