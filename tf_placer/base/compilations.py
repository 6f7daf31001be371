"""What XLA compiled for clusters, kept between processes in the user's cache: TensorFlow's own persistent cache.

TensorFlow reads the flag for it once, when its first device is made. So it has to be in the environment with which a
process starts; ``tf_placer.ops.library`` sets it in a process that runs already.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import pathlib
from collections.abc import Mapping

from tf_placer.base.files import user_cache_folder

VARIABLE = "TF_XLA_FLAGS"
FLAG = "--tf_xla_persistent_cache_directory"
DEVICE_TYPES = "CPU"  # a GPU's compilations are kept by its driver
KIND = "compilations"  # name of the folder in the user's cache
LIMIT_BYTES = 2**30
_CPU_FACTS = ("vendor_id", "cpu family", "model", "stepping", "flags")


def with_kept_compilations(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which TensorFlow keeps what XLA compiles, and loads what it compiled before.

    As it is where the user names a folder for that, or where nothing can be kept.

    Args:
      environment: of a process that has yet to start.
    """
    given = environment.get(VARIABLE, "")
    folder = None if FLAG in given else compilations_folder()
    if folder is None or any(
        blank in str(folder) for blank in " \t\n"
    ):  # TensorFlow cuts the flags at blanks
        return dict(environment)
    return {**environment, VARIABLE: f"{given} {flags_for(folder)}".strip()}


def flags_for(folder: pathlib.Path) -> str:
    """What ``TF_XLA_FLAGS`` says where a folder keeps what XLA compiles.

    Args:
      folder: without blanks in its name.
    """
    return f"{FLAG}={folder} --tf_xla_persistent_cache_device_types={DEVICE_TYPES}"


@functools.cache
def compilations_folder() -> pathlib.Path | None:
    """Where this machine's compilations are kept, made if need be; None where nothing can be kept.

    A folder for each processor and TensorFlow, because a compilation is machine code. Only its owner may write there,
    since what lies in it is run. What is oldest goes first where all of them take more than ``LIMIT_BYTES``.
    """
    everything = user_cache_folder() / KIND
    folder = everything / _digest_of_machine()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid() or not os.access(folder, os.W_OK):
            return None
        folder.chmod(0o700)
    except OSError:
        return None
    _prune(everything)
    return folder


def _prune(folder: pathlib.Path) -> None:
    """Removes what is oldest until the limit holds; other processes may do the same."""
    found = []
    for path in folder.rglob("*.pb"):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    excess = sum(num_bytes for _, num_bytes, _ in found) - LIMIT_BYTES
    for _, num_bytes, path in sorted(found):
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= num_bytes


def _digest_of_machine() -> str:
    """Hex digest of the processor and of TensorFlow's version."""
    facts = [importlib.metadata.version("tensorflow"), os.uname().machine]
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf8") as file:
        for line in file:
            if not line.strip():
                break  # the first core tells
            name, _, value = line.partition(":")
            if name.strip() in _CPU_FACTS:
                facts.append(value.strip())
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
