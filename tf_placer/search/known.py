"""Names of methods, known without TensorFlow, which the methods import: flags are checked with them."""

from __future__ import annotations

import sys

from tf_placer.arguments import nearest
from tf_placer.errors import InputError

_TABLE = "tf_placer.search.methods"

# Of all that come with tf_placer, and those with a role that flags have as their defaults. A test holds all of it
# equal to the table of methods.
BUILT_IN = (
    "auto",
    "brkga",
    "cem",
    "colocrl",
    "cp_sat",
    "cpu_only",
    "expert",
    "go",
    "go_zero_shot",
    "hdp",
    "heft",
    "learned_list",
    "list_schedule",
    "local_search",
    "m_etf",
    "m_sct",
    "m_topo",
    "mars",
    "memetic",
    "metis",
    "mincut",
    "peft",
    "placeto",
    "post",
    "random",
    "regal",
    "scotch",
    "single",
    "tabular",
    "tf_default",
    "topological_fill",
)
DEFAULT = "auto"
COMPARED = ("single", "random", DEFAULT)


def methods() -> tuple[str, ...]:
    """Names of all search methods, sorted, those that were added included: what ``search`` takes as ``method``."""
    table = sys.modules.get(_TABLE)
    return BUILT_IN if table is None else tuple(table.names())


def check_name(name: str) -> None:
    """Raises InputError unless a method has this name; the message gives the nearest ones."""
    if name not in methods():
        raise InputError(f"no method is called {name!r}; {nearest(name, methods())}")
