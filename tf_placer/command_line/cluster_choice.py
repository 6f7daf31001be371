"""The cluster that a user means by a word."""

from __future__ import annotations

import os
import pathlib

from tf_placer.cluster.cluster import Cluster


def choose_cluster(text: str) -> Cluster:
    """``local``, a cluster file (it ends in ``.toml`` or has a slash), or else a preset's name.

    Raises:
      InputError: no such preset, or the file is not a valid cluster.
    """
    if text == "local":
        return Cluster.local()
    if os.sep in text or pathlib.Path(text).suffix == ".toml":
        return Cluster.from_file(text)
    return Cluster.preset(text)
