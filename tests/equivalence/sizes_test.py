"""Programs that use the size of their batch in every way give the same in parts and whole, for every batch."""

import collections

import pytest

from tests.logical_devices import outcomes_of


def check(first: int, number: int, batches: int, timeout_s: float) -> collections.Counter:
    """Numbers of programs of each kind; none of them is wrong."""
    arguments = map(str, (first, number, batches))
    outcomes = outcomes_of("tests.equivalence.sizes_process", *arguments, timeout_s=timeout_s)
    assert [outcome for outcome in outcomes if outcome["wrong"]] == []
    return collections.Counter(outcome["kind"] for outcome in outcomes)


@pytest.mark.medium
def test_programs_are_served_alike_for_other_batches():
    kinds = check(0, 4, 8, 600)
    assert kinds["of one batch"] and kinds["of any batch"]


@pytest.mark.equivalence
@pytest.mark.parametrize("first", range(1_000, 1_100, 10))
def test_many_programs_are_served_alike_at_forty_batches(first: int):
    assert check(first, 10, 40, 3_600).total() == 10
