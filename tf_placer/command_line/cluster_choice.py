"""The cluster that a user means by a word."""

from __future__ import annotations

import os
import pathlib

from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError


def choose_cluster(text: str) -> Cluster:
    """``local``, ``local:2`` (so many CPU workers), a cluster file (ends in ``.toml`` or has a slash), or a preset.

    Raises:
      InputError: no such preset, the file is not a valid cluster, or there are not as many cores.
    """
    if text == "local":
        return Cluster.local()
    if text.startswith("local:"):
        cores = text.removeprefix("local:")
        if not cores.isdecimal():
            raise InputError(f"--cluster={text}: {cores!r} is no number of CPU workers; write local:2, say")
        return Cluster.local(int(cores))
    if os.sep in text or pathlib.Path(text).suffix == ".toml":
        return Cluster.from_file(text)
    return Cluster.preset(text)
