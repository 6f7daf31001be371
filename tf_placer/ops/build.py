"""Compiles the C++ ops against the installed TensorFlow, once per source and TensorFlow version.

``python -m tf_placer.ops.build`` compiles ahead of time; the ops compile themselves on first use otherwise.
"""

from __future__ import annotations

import pathlib

import tensorflow as tf

from tf_placer.base.compiled_library import Library, compiled, is_compiled, prebuilt_file

_FOLDER = pathlib.Path(__file__).parent
_FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-fPIC", "-shared", "-Wall", "-Wno-sign-compare")


def build_library() -> pathlib.Path:
    """The shared object with the ops, compiled if there is none for this source and this TensorFlow.

    It is kept beside this module, or in the user's cache directory when that is read-only. The environment
    variable TF_PLACER_OPS_LIBRARY names a library that was built elsewhere (by Bazel, say).

    Returns:
      Path of the library.

    Raises:
      InputError: there is no g++, or it fails; or TF_PLACER_OPS_LIBRARY names no file.
    """
    return compiled(_library())


def library_name() -> str:
    """Name of the file that ``build_library`` gives, which tells of every change of the code; compiles nothing."""
    prebuilt = prebuilt_file(_library())
    return _library().file_name if prebuilt is None else prebuilt.name


def is_built() -> bool:
    """Whether ``build_library`` has nothing to compile."""
    return is_compiled(_library())


def _library() -> Library:
    include, *flags = tf.sysconfig.get_compile_flags()
    return Library(
        name="_tf_placer_ops",
        purpose="the simulator",
        sources=_FOLDER / "cc",
        folder=_FOLDER,
        flags=(*_FLAGS, *flags),
        prebuilt="TF_PLACER_OPS_LIBRARY",
        depends_on=(tf.__version__,),
        places=(include, *tf.sysconfig.get_link_flags()),
    )


if __name__ == "__main__":
    print(build_library())
