"""Compiles the C++ ops against the installed TensorFlow, once per source and TensorFlow version.

``python -m tf_placer.ops.build`` compiles ahead of time; the ops compile themselves on first use otherwise.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import tensorflow as tf

from tf_placer.errors import InputError

_SOURCE_DIR = pathlib.Path(__file__).parent / "cc"
_FLAGS = ("-std=c++17", "-O3", "-DNDEBUG", "-fPIC", "-shared", "-Wall", "-Wno-sign-compare")


def build_library(force: bool = False) -> pathlib.Path:
    """The shared object with the ops, compiled if there is none for this source and this TensorFlow.

    It is kept beside this module, or in the user's cache directory when that is read-only. Several
    processes may build at once: each writes a file of its own and renames it. The environment
    variable TF_PLACER_OPS_LIBRARY names a library that was built elsewhere (by Bazel, say).

    Args:
      force: compile even if there is one.

    Returns:
      Path of the library.

    Raises:
      InputError: there is no g++, or it fails; or TF_PLACER_OPS_LIBRARY names no file.
    """
    prebuilt = os.environ.get("TF_PLACER_OPS_LIBRARY")
    if prebuilt and not force:
        if not pathlib.Path(prebuilt).is_file():
            raise InputError(
                f"TF_PLACER_OPS_LIBRARY is {prebuilt}, which is no file; unset it to compile the ops"
            )
        return pathlib.Path(prebuilt)
    name = f"_tf_placer_ops_{_fingerprint()}.so"
    if not force:
        for folder in _folders():
            if (folder / name).exists():
                return folder / name
    for folder in filter(_is_writable, _folders()):
        _compile(folder / name)
        return folder / name
    tried = ", ".join(map(str, _folders()))
    raise InputError(f"no writable folder for the compiled ops (tried {tried}); set XDG_CACHE_HOME")


def _folders() -> list[pathlib.Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return [pathlib.Path(__file__).parent, pathlib.Path(cache) / "tf_placer"]


def _is_writable(folder: pathlib.Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _fingerprint() -> str:
    """Hex digest of all that the compiled code depends on."""
    flags = (*_FLAGS, *tf.sysconfig.get_compile_flags()[1:])  # the first one is a path
    digest = hashlib.sha256(" ".join((tf.__version__, *flags)).encode())
    for path in sorted(_SOURCE_DIR.iterdir()):
        if path.suffix in (".cc", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(target: pathlib.Path) -> None:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise InputError(f"cannot compile the simulator: {compiler} not found; install g++ or set CXX")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build_") as scratch:
        built = pathlib.Path(scratch) / target.name
        sources = map(str, sorted(_SOURCE_DIR.glob("*.cc")))
        command = [compiler, *_FLAGS, *tf.sysconfig.get_compile_flags(), *sources, "-o", str(built)]
        command += tf.sysconfig.get_link_flags()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error:" in line] or [done.stderr.strip()]
            raise InputError(f"{compiler} could not compile the simulator: {errors[0]}")
        os.replace(built, target)


if __name__ == "__main__":
    print(build_library())
