"""Which units may run on the same devices."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class LegalityClasses:
    """Units by the devices that they may run on, so that whatever is decided for several units is legal for all.

    Attributes:
      class_of_unit: [U] int32; -1 where there is one legal device and so nothing to decide.
      legal: [C, D] bool, at least two devices a row, C >= 1. Where no unit has a choice there is one class without
        units, of all devices.
      first_legal: [U] int32, the one device where there is nothing to decide.
    """

    class_of_unit: np.ndarray
    legal: np.ndarray
    first_legal: np.ndarray

    @property
    def units_of_class(self) -> np.ndarray:
        """[C] int64, how many units each class has."""
        return np.bincount(self.class_of_unit[self.class_of_unit >= 0], minlength=len(self.legal))


def legality_classes(allowed: np.ndarray) -> LegalityClasses:
    """Sorts units into classes, the most units first.

    Args:
      allowed: [U, D] bool, at least one True in each row.
    """
    rows, row_of_unit, count = np.unique(allowed, axis=0, return_inverse=True, return_counts=True)
    row_of_unit = row_of_unit.reshape(-1)
    choice = rows.sum(axis=1) > 1
    kept = np.array([row for row in np.argsort(-count, kind="stable") if choice[row]], np.int64)
    class_of_row = np.full(len(rows), -1, np.int32)
    class_of_row[kept] = np.arange(len(kept))
    legal = rows[kept] if len(kept) else np.ones((1, allowed.shape[1]), bool)
    return LegalityClasses(class_of_row[row_of_unit], legal, allowed.argmax(axis=1).astype(np.int32))
