"""The cluster that a user means by a word, on the command line and to ``auto_place``."""

from __future__ import annotations

import os
import pathlib

from tf_placer.base.arguments import InputError, nearest
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.cluster_file import preset_names
from tf_placer.cluster.local import check_cores

LOCAL = "local"
# Users' words for the devices of their own machine.
_THIS_MACHINE = frozenset(
    [
        "cpu",
        "cpus",
        "cuda",
        "device",
        "devices",
        "gpu",
        "gpus",
        "here",
        "host",
        "localhost",
        "machine",
        "this",
    ]
)


def choose_cluster(text: str, said: str) -> Cluster:
    """``local``, ``local:2`` (so many CPU workers), a cluster file (ends in ``.toml`` or has a slash), or a preset.

    Args:
      text: the word.
      said: how the user said it, for messages: ``--cluster=local:2``, say.

    Raises:
      InputError: no such preset, the file is not a valid cluster, or there are not as many cores; begins with ``said``.
    """
    cores = local_cores(text, said)
    try:
        if text.partition(":")[0] == LOCAL:
            return Cluster.local(cores)
        if is_about_this_machine(text):
            raise InputError(
                f"unknown cluster preset {text!r}; did you mean {LOCAL!r}, this machine's GPUs, or else its CPU cores?"
            )
        if os.sep in text or pathlib.Path(text).suffix == ".toml":
            return Cluster.from_file(text)
        if text and text not in preset_names():
            raise InputError(f"unknown cluster preset {text!r}; {_remedy(text)}")
        return Cluster.preset(text)
    except InputError as error:
        raise InputError(f"{said}: {str(error).removeprefix(f'{text}: ')}") from None


def is_about_this_machine(text: str) -> bool:
    """True if a word that is no cluster means this machine's devices: ``gpu``, ``GPU:0``, ``/device:CPU:0``."""
    word = text.casefold().removeprefix("/").removeprefix("device:").partition(":")[0]
    return word.rstrip("0123456789") in _THIS_MACHINE


def _remedy(text: str) -> str:
    """Remedy for a word that is no preset."""
    if pathlib.Path(f"{text}.toml").is_file():
        return f"did you mean the file {text}.toml?"
    if pathlib.Path(text).is_file():
        return f"a cluster file ends in .toml; rename {text}"
    return nearest(text, (*preset_names(), LOCAL))


def local_cores(text: str, said: str) -> int | None:
    """Number of workers that ``local:2`` asks for; None for ``local`` and for any other cluster.

    Raises:
      InputError: it is no number, or more than there are cores; begins with ``said``. Nothing is probed for that.
    """
    word, colon, cores = text.partition(":")
    if word != LOCAL or not colon:
        return None
    if not cores.isdecimal():
        raise InputError(f"{said}: {cores!r} is no number of CPU workers; write local:2, say")
    try:
        return check_cores(int(cores))
    except (InputError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise InputError(f"{said}: {error}") from None
