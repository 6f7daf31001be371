"""Bugs that are put into tf_placer on purpose are seen by the checks of pairs; without one there is nothing to see."""

from __future__ import annotations

import pytest

from tests.equivalence.clean_up_bugs import BUGS as CLEAN_UP_BUGS
from tests.equivalence.rewrite_bugs import BUGS as REWRITE_BUGS
from tests.logical_devices import outcomes_of

BUGS = (*REWRITE_BUGS, *CLEAN_UP_BUGS)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """How each bug was caught, by name."""
    return outcomes_of("tests.equivalence.bugs_process", timeout_s=1200)


@pytest.mark.equivalence
def test_without_a_bug_all_is_well(outcomes: dict[str, str]) -> None:
    assert outcomes["no bug"] == ""


@pytest.mark.equivalence
@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_caught(outcomes: dict[str, str], name: str) -> None:
    print(outcomes[name])
    assert outcomes[name], f"{name} was not noticed"


def test_there_are_40_bugs_and_each_has_its_own_words() -> None:
    bugs = {**REWRITE_BUGS, **CLEAN_UP_BUGS}
    assert len(bugs) == len(REWRITE_BUGS) + len(CLEAN_UP_BUGS) >= 40
    assert len({bug.what for bug in bugs.values()}) == len(bugs)
