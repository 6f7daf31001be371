"""What a program returned, as plain Python values that are equal only if every bit is."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def observed(value: Any) -> Any:
    """Tensors of every kind, variables, arrays and structures of them as lists, tuples, strings and bytes."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, tf.RaggedTensor):
        return ["ragged", *(observed(part) for part in (value.flat_values, *value.nested_row_splits))]
    if isinstance(value, tf.SparseTensor):
        return ["sparse", observed(value.indices), observed(value.values), observed(value.dense_shape)]
    if isinstance(value, tf.IndexedSlices):
        return ["slices", observed(value.indices), observed(value.values)]
    if isinstance(value, Mapping):
        return {str(key): observed(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(observed(part) for part in value)]
    if isinstance(value, tf.experimental.ExtensionType):
        return [
            type(value).__name__,
            *(observed(part) for part in tf.nest.flatten(value, expand_composites=True)),
        ]
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        content = array.tolist() if array.dtype == object else array.tobytes().hex()
        return [str(array.dtype), list(array.shape), content]
    if isinstance(value, bytes):  # a scalar of strings
        return repr(value)
    raise TypeError(f"a program returned a {type(value).__name__}, which cannot be compared")
