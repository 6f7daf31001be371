"""Libraries of ops that TensorFlow lacks, loaded because somebody names them."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import tensorflow as tf

from tf_placer.errors import InputError
from tf_placer.tensorflow_message import told


def load_op_libraries(files: Sequence[str]) -> None:
    """Loads them into this process, so that their ops can be read and run.

    Raises:
      InputError: a file is missing, or is no library that this TensorFlow takes.
    """
    for file in files:
        if not pathlib.Path(file).is_file():
            raise InputError(f"--op_library={file}: no such file; give a shared library, FILE.so say")
        try:
            tf.load_op_library(str(pathlib.Path(file).resolve()))
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            raise InputError(
                f"--op_library={file}: TensorFlow {tf.__version__} cannot load it ({told(error)}); give a library of "
                "ops that was built for it"
            ) from error
