"""XLA's compilations kept between processes, switched on in a process that runs already."""

from __future__ import annotations

import ctypes
import functools
import logging

from tf_placer.base.compilations import DEVICE_TYPES, compilations_folder
from tf_placer.ops.build import build_library
from tf_placer.ops.library import library

_LOG = logging.getLogger(__name__)


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
