"""How many groups each kind of units gets."""

from __future__ import annotations

import numpy as np

from tf_placer.errors import InputError


def group_shares(units_of_class: np.ndarray, num_groups: int) -> np.ndarray:
    """Shares groups among legality classes by their numbers of units; every class gets one.

    A group holds units of one class alone, so what is legal for a group is legal for all of it.

    Args:
      units_of_class: [C] int, C >= 1.
      num_groups: G, the policy's.

    Returns:
      [G'] int32 class of each group, ascending; G' is less than G where there are fewer units than groups.

    Raises:
      InputError: there are more classes than groups.
    """
    classes = len(units_of_class)
    if classes > num_groups:
        raise InputError(
            f"num_groups is {num_groups}; the units of this problem are of {classes} kinds, by the devices that they "
            f"may run on, so give at least {classes}"
        )
    more = np.maximum(units_of_class - 1, 0)
    spare = min(num_groups - classes, int(more.sum()))
    exact = spare * more / max(int(more.sum()), 1)
    shares = np.floor(exact).astype(np.int64)
    # Largest remainders; a class with a remainder has a unit left for it.
    left = np.argsort(shares - exact, kind="stable")[: spare - int(shares.sum())]
    shares[left] += 1
    return np.repeat(np.arange(classes, dtype=np.int32), 1 + shares)
