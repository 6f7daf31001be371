"""Keeps TensorFlow's native start-up messages off the command line's stderr.

Imported for its effect, before anything that imports TensorFlow, and only effective when this
process is the command: a program that uses tf_placer as a library keeps its own log settings.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import pathlib
import sys

_OUR_PACKAGES = ("tf_placer", "experiments")


def is_command() -> bool:
    """True if Python was started to run ``python -m tf_placer``, an experiment, or ``tf-placer``."""
    # While Python looks for the module that -m names, "-m" stands in place of its path; orig_argv has the module.
    if sys.argv[0] == "-m":
        modules = (argument.removeprefix("-m") for argument in sys.orig_argv[1:])
        return any(module.partition(".")[0] in _OUR_PACKAGES for module in modules)
    return pathlib.Path(sys.argv[0]).name == "tf-placer"


def load_tensorflow() -> None:
    """Imports TensorFlow and Keras, without their messages where this process is a command.

    File descriptor 2 points nowhere meanwhile. ``TF_CPP_MIN_LOG_LEVEL`` does not reach the messages of static
    initializers ("All log messages before absl::InitializeLog() is called ...") and of CUDA's (a failed cuInit), so
    nothing less helps. An error is raised as usual and printed after the descriptor is back.
    """
    with contextlib.ExitStack() as stack:
        if _IS_COMMAND:
            sys.stderr.flush()
            saved = os.dup(2)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, 2)
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf8"))
            os.dup2(nowhere.fileno(), 2)
        tensorflow = importlib.import_module("tensorflow")
        importlib.import_module("keras")
        if _IS_COMMAND:
            tensorflow.config.list_physical_devices()  # once: the first look at GPUs says what it misses


_IS_COMMAND = is_command()
if _IS_COMMAND:
    # 3 keeps even errors off: on a machine without a GPU the CUDA build logs a failed cuInit as one.
    # What goes wrong in an op reaches Python as an exception all the same.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # ``python -m tf_placer`` and ``tf-placer`` load TensorFlow when their flags are right. The word behind -m is what
    # Python runs, and all that follows is the command's.
    if sys.argv[0] == "-m" and not any(
        argument == "-mtf_placer" or (before, argument) == ("-m", "tf_placer")
        for before, argument in itertools.pairwise(sys.orig_argv)
    ):
        load_tensorflow()
