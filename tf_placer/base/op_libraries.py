"""Libraries of ops that TensorFlow lacks, loaded at a user's request."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import tensorflow as tf

from tf_placer.base.arguments import InputError, told

_loaded: dict[
    str, None
] = {}  # in order, as TensorFlow itself keeps what it has loaded: for the whole process


def load_op_libraries(files: Sequence[str]) -> None:
    """Loads them into this process, and into workers that are started later, so that their ops can be read and run.

    Raises:
      InputError: a file is missing, or is no library that this TensorFlow takes.
    """
    for file in files:
        if not pathlib.Path(file).is_file():
            raise InputError(f"--op_library={file}: no such file; give a shared library, FILE.so say")
        path = str(pathlib.Path(file).resolve())
        try:
            tf.load_op_library(path)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            raise InputError(
                f"--op_library={file}: TensorFlow {tf.__version__} cannot load it ({told(error)}); give a library of "
                "ops that was built for it"
            ) from error
        _loaded[path] = None


def loaded_op_libraries() -> tuple[str, ...]:
    """The files that ``load_op_libraries`` has loaded."""
    return tuple(_loaded)
