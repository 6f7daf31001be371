"""Puts one bug after the other into tf_placer, checks pairs until one shows it, and prints which and how, as JSON.

A process of its own: TensorFlow fixes its logical devices when its first op runs.
"""

from __future__ import annotations

import gc
import json
import sys

from tests.equivalence.bug import Bug, in_effect
from tests.equivalence.clean_up_bugs import BUGS as CLEAN_UP_BUGS
from tests.equivalence.operations import program_of_seed
from tests.equivalence.pairs import Subject, Way, check_item, check_pair, problem_of, random_row, subject_of
from tests.equivalence.rewrite_bugs import BUGS as REWRITE_BUGS
from tests.logical_devices import exact_mode

PROGRAMS = 40
WAY = Way(publicly=False)
NO_BUG = "no bug"


_subjects: dict[int, Subject] = {}


def _subject(seed: int) -> Subject:
    if seed not in _subjects:
        _subjects[seed] = subject_of(program_of_seed(seed), gradients=seed % 3 == 0)
    return _subjects[seed]


def complaints_of(seed: int, number: int) -> list[str]:
    """What is wrong with one placement of a program; what cannot even be made an item fails, too."""
    subject = _subject(seed)
    try:
        item, problem = problem_of(subject)
        complaints = check_item(subject, item)
    except Exception as error:  # noqa: BLE001 - whatever the bug raises, it has been caught
        return [f"raised {type(error).__name__}: {error}"]
    row = random_row(problem, seed, number)
    return complaints + list(check_pair(subject, item, problem, row, WAY).complaints)


def caught(bug: Bug, number: int) -> str:
    """Which pair showed a bug, and how; empty if none did.

    Args:
      bug: the bug.
      number: of the placements; another for every bug, else the variables would be where they belong already.
    """
    for seed in range(PROGRAMS):
        with in_effect(bug):
            complaints = complaints_of(seed, number)
        if complaints:
            del _subjects[seed]  # the bug may have left the program's variables in any state
            return f"pair {seed}: {'; '.join(complaints)[:300]}"
    return ""


def main() -> None:
    exact_mode()
    gc.freeze()  # moving a variable looks through everything alive, modules need not be looked at
    outcomes = {NO_BUG: "; ".join(line for seed in range(PROGRAMS) for line in complaints_of(seed, 0))}
    for number, (name, bug) in enumerate({**REWRITE_BUGS, **CLEAN_UP_BUGS}.items()):
        outcomes[name] = caught(bug, 3 * number + 1)  # not those that leave most units on one device
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
