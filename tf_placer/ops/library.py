"""The C++ ops, compiled and loaded when they are first needed."""

from __future__ import annotations

import functools
from types import ModuleType

import tensorflow as tf


@functools.cache
def library() -> ModuleType:
    """The Python face of the ops' library."""
    # Imported here so that `python -m tf_placer.ops.build` does not find itself imported already.
    from tf_placer.ops.build import build_library

    return tf.load_op_library(str(build_library()))
