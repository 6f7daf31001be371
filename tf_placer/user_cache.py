"""Folder of this user's caches (profiles, plans, traced workloads, compiled libraries), and the limit on workloads."""

from __future__ import annotations

import math
import os
import pathlib

from tf_placer.errors import InputError

WORKLOADS_LIMIT = "TF_PLACER_WORKLOAD_CACHE_GIB"  # environment variable
_DEFAULT_GIB = 5.0
_NOBODYS_HOME = "/nonexistent"  # what systems call the home of who has none


def user_cache_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer``, usually in ``~/.cache``; it need not be there, nor can it always be made."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return pathlib.Path(cache) / "tf_placer"
    home = os.path.expanduser("~")  # unchanged where the user has no home, as in some containers
    return pathlib.Path(_NOBODYS_HOME if home == "~" else home) / ".cache" / "tf_placer"


def workloads_limit_bytes() -> int:
    """Bytes that traced workloads may take in the cache: 5 GiB, or what ``TF_PLACER_WORKLOAD_CACHE_GIB`` says.

    Raises:
      InputError: the variable holds no number of gibibytes.
    """
    given = os.environ.get(WORKLOADS_LIMIT, "") or str(_DEFAULT_GIB)
    try:
        gibibytes = float(given)
    except ValueError:
        gibibytes = math.nan
    if not 0 <= gibibytes < math.inf:
        raise InputError(
            f"{WORKLOADS_LIMIT} is {given!r}; give gibibytes, for example 5, or 0 to keep nothing"
        )
    return int(gibibytes * 2**30)
