"""Where this user's caches are: profiles, plans, traced workloads and compiled libraries each have a folder in it."""

from __future__ import annotations

import os
import pathlib

_NOBODYS_HOME = "/nonexistent"  # what systems call the home of who has none


def user_cache_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer``, usually in ``~/.cache``; it need not be there, nor can it always be made."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return pathlib.Path(cache) / "tf_placer"
    home = os.path.expanduser("~")  # unchanged where the user has no home, as in some containers
    return pathlib.Path(_NOBODYS_HOME if home == "~" else home) / ".cache" / "tf_placer"
