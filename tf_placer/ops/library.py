"""The C++ ops, compiled and loaded when they are first needed, and what their library does for a process beside them.

It keeps variables and tables when TensorFlow gives its devices new lists of resources, and XLA's compilations between
processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
from collections.abc import Iterator
from types import ModuleType

import tensorflow as tf

from colocation.tensorflow_internals import live_resources
from tf_placer.base.native import DEVICE_TYPES, compilations_folder
from tf_placer.ops.build import build_library

_LOG = logging.getLogger(__name__)


@functools.cache
def library() -> ModuleType:
    """The Python face of the ops' library."""
    return tf.load_op_library(str(build_library()))


@contextlib.contextmanager
def resources_kept() -> Iterator[None]:
    """Keeps variables, tables, queues and summary writers of this process while connecting to others.

    Connecting gives each of its devices a new, empty list of resources. Without this, a table, a queue or a summary
    writer is gone then, since its handle has its name alone. A handle of a variable has the variable itself, so that it
    can be read and added to. But the op that assigns looks in the list, by name, does not find it, and makes another
    one under that name, which nothing reads: what is assigned is lost without a word, eagerly and in functions.
    """
    held = [(handle, library().tf_placer_hold_resource(handle=handle)) for handle in live_resources()]
    yield
    for handle, resource in held:
        library().tf_placer_list_resource(handle=handle, held=resource)


@functools.cache
def keep_compilations() -> None:
    """From now on this process keeps what XLA compiles, unless XLA compiled something here before.

    Where TensorFlow has no such flag, one warning says so.
    """
    folder = compilations_folder()
    if folder is None:
        return
    library()  # TensorFlow first: of what was loaded without it, it would not know the ops
    keep = ctypes.CDLL(str(build_library())).TfPlacerKeepCompilations
    if keep(str(folder).encode(), DEVICE_TYPES.encode()):
        _LOG.warning(
            "this TensorFlow keeps no compilations, so XLA compiles a plan's clusters in every process anew"
        )
