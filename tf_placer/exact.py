"""Arrays of whole numbers that come from outside, taken as they are or not at all."""

from __future__ import annotations

import numpy as np

from tf_placer.arguments import shown
from tf_placer.errors import InputError


def exact(name: str, value: object, dtype: type) -> np.ndarray:
    """``value`` as an array of ``dtype``, when that changes no number.

    Args:
      name: what the array is called in the error.
      value: array-like.
      dtype: an integer type or bool.

    Raises:
      InputError: a fraction (seconds where nanoseconds are meant, say), a number out of range, no numbers, or rows of
        different lengths.
    """
    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is {shown(value)}, which is no array; give rows of equal length") from error
    if given.dtype.kind in "iufb":
        with np.errstate(invalid="ignore"):
            cast: np.ndarray = given.astype(dtype)
        if np.array_equal(cast, given):
            return cast
    raise InputError(
        f"{name}: expected whole numbers that fit {np.dtype(dtype).name}, got {_values(given)}; give an array of them"
    )


def _values(given: np.ndarray) -> str:
    return f"{given.dtype} values that do not" if given.dtype.kind in "iufb" else shown(given.tolist())
