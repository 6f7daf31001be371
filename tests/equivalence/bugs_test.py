"""Bugs that are put into tf_placer on purpose are seen by the checks of pairs; without one there is nothing to see."""

import traceback

import pytest

from tests.equivalence import bugs
from tests.equivalence.bugs import BUGS
from tests.equivalence.operations import program_of_seed
from tests.equivalence.pairs import Subject, Way, check_item, check_pair, problem_of, random_row, subject_of

PROGRAMS = 40
WAY = Way(publicly=False)
# Programs draw with seeds as they are run without a plan: the warning is no complaint, and would catch every bug.
pytestmark = pytest.mark.filterwarnings("ignore:variables move to other devices. numbers that:UserWarning")
in_own_process = pytest.mark.own_process(exact=True, timeout_s=1200)


SUBJECTS: dict[int, Subject] = {}


def subject(seed: int) -> Subject:
    """A program as it runs without a bug."""
    if seed not in SUBJECTS:
        SUBJECTS[seed] = subject_of(program_of_seed(seed), gradients=seed % 3 == 0)
    return SUBJECTS[seed]


def complaints_of(seed: int, number: int) -> list[str]:
    """What is wrong with one placement of a program; what cannot even be made an item fails, too."""
    one = subject(seed)
    try:
        item, problem = problem_of(one)
        complaints = check_item(one, item)
    except Exception as error:  # noqa: BLE001 - whatever the bug raises, it has been caught
        raised_here = traceback.extract_tb(error.__traceback__)[-1].filename == bugs.__file__
        assert not raised_here, f"the stand-in itself fails: {error!r}"
        return [f"raised {type(error).__name__}: {error}"]
    row = random_row(problem, seed, number)
    return complaints + list(check_pair(one, item, problem, row, WAY).complaints)


@in_own_process
@pytest.mark.equivalence
def test_without_a_bug_all_is_well():
    assert [line for seed in range(PROGRAMS) for line in complaints_of(seed, 0)] == []


@in_own_process
@pytest.mark.equivalence
@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_caught(name):
    # Another placement for every bug, else the variables would be where they belong already; and not those that leave
    # most units on one device.
    number = 3 * list(BUGS).index(name) + 1
    for seed in range(PROGRAMS):
        subject(seed)
        with BUGS[name].in_effect():
            complaints = complaints_of(seed, number)
        if complaints:
            del SUBJECTS[seed]  # the bug may have left the program's variables in any state
            print(f"pair {seed}: {'; '.join(complaints)[:300]}")
            return
    pytest.fail(f"{name} was not noticed")


def test_there_are_40_bugs_and_each_has_its_own_words():
    assert len(BUGS) >= 40
    assert len({bug.what for bug in BUGS.values()}) == len(BUGS)
