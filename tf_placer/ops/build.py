"""Compiles the C++ ops against the installed TensorFlow, once per source and TensorFlow version.

A wheel carries them (``setup.py``); where that lacks them they are compiled on first use.
"""

from __future__ import annotations

import pathlib

from tf_placer.base.native import Library, compiled, existing_file, prebuilt_file, tensorflow

_FOLDER = pathlib.Path(__file__).parent
_FLAGS = ("-O3", "-fPIC", "-shared", "-Wall", "-Wno-sign-compare", "-Wno-deprecated-declarations")


def build_library(is_announced: bool = False) -> pathlib.Path:
    """The shared object with the ops, compiled if there is none for this source and this TensorFlow.

    It is kept beside this module, or in the user's cache directory when that is read-only. The environment
    variable TF_PLACER_OPS_LIBRARY names a library that was built elsewhere (by Bazel, say).

    Args:
      is_announced: the caller has said that something is compiled, and how long that takes.

    Returns:
      Path of the library.
    """
    return compiled(ops_library(), is_announced)


def library_name() -> str:
    """Name of the file that ``build_library`` gives, which tells of every change of the code; compiles nothing."""
    prebuilt = prebuilt_file(ops_library())
    return ops_library().file_name if prebuilt is None else prebuilt.name


def is_built() -> bool:
    """Whether ``build_library`` has nothing to compile."""
    return existing_file(ops_library()) is not None


def ops_library() -> Library:
    """The library of the ops, for the installed TensorFlow."""
    version, shape, places = tensorflow()
    return Library(
        name="_tf_placer_ops",
        purpose="the simulator",
        sources=_FOLDER / "cc",
        folder=_FOLDER,
        flags=(*_FLAGS, *shape),
        prebuilt="TF_PLACER_OPS_LIBRARY",
        depends_on=(version,),
        places=places,
        core_s=65.0,
    )
