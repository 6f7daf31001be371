"""What can be said of an agent's searches: does it learn, and is it ahead of who does not?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from experiments.curves.cells import SearchCell
from experiments.papers.cells import OK

# Sums in another order differ in their last digits, which is no difference.
_EQUAL = 1 - 1e-9


def has_learned(cell: SearchCell) -> bool:
    """The mean of its last samples is faster than the best of its first ones: what it finds, luck did not find."""
    return _less(cell.last_mean_s, cell.first_best_s)


def mean_is_ahead(cell: SearchCell, other: SearchCell) -> bool:
    """The mean of its last samples is faster than the other's best after as many evaluations."""
    return _less(cell.last_mean_s, other.best_at(cell.evaluations))


def best_is_ahead(cell: SearchCell, other: SearchCell) -> bool:
    """Its best is faster than the other's after as many evaluations."""
    return _less(cell.runtime_s, other.best_at(cell.evaluations))


def is_not_behind(cell: SearchCell, other: SearchCell) -> bool:
    """The other's best after as many evaluations is not faster than its own."""
    return cell.status == OK and not _less(other.best_at(cell.evaluations), cell.runtime_s)


def count(
    verdict: Callable[[SearchCell, SearchCell], bool],
    cells: Sequence[SearchCell],
    others: Sequence[SearchCell],
) -> tuple[int, int]:
    """In how many seeds it is true, and of how many; a method that draws nothing has one cell for all seeds."""
    paired = [(cell, others[min(i, len(others) - 1)]) for i, cell in enumerate(cells)] if others else []
    return sum(verdict(*pair) for pair in paired), len(paired)


def _less(one: float, other: float) -> bool:
    """Clearly so, and both are known; anything is faster than what did not fit."""
    return not math.isnan(one) and one < other * _EQUAL
