"""The cluster that a user means by a word, on the command line and to ``auto_place``."""

from __future__ import annotations

import os
import pathlib

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.local import check_cores
from tf_placer.errors import InputError

_LOCAL = "local"


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
        if text.partition(":")[0] == _LOCAL:
            return Cluster.local(cores)
        if os.sep in text or pathlib.Path(text).suffix == ".toml":
            return Cluster.from_file(text)
        return Cluster.preset(text)
    except InputError as error:
        raise InputError(f"{said}: {str(error).removeprefix(f'{text}: ')}") from None


def local_cores(text: str, said: str) -> int | None:
    """How many workers ``local:2`` asks for; None for ``local``, which leaves it open, and for any other cluster.

    Raises:
      InputError: it is no number, or more than there are cores; begins with ``said``. Nothing is probed for that.
    """
    word, colon, cores = text.partition(":")
    if word != _LOCAL or not colon:
        return None
    if not cores.isdecimal():
        raise InputError(f"{said}: {cores!r} is no number of CPU workers; write local:2, say")
    try:
        return check_cores(int(cores))
    except (InputError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise InputError(f"{said}: {error}") from None
