"""Names of methods, known without TensorFlow, which the methods import: flags are checked with them."""

from __future__ import annotations

import sys

from tf_placer.arguments import nearest
from tf_placer.errors import InputError

_TABLE = "tf_placer.search.methods"

# Those that come with tf_placer, beside the portfolio of them: the module where each has its row, a ``MethodSpec``.
MODULES = {
    "brkga": "planners.brkga",
    "cem": "planners.cem",
    "colocrl": "agents.colocrl.learner",
    "cp_sat": "planners.cp_sat",
    "cpu_only": "planners.cpu_only",
    "expert": "planners.expert",
    "go": "agents.go.learner",
    "go_zero_shot": "agents.go.zero_shot",
    "hdp": "agents.hdp.learner",
    "heft": "planners.heft",
    "learned_list": "agents.learned_list.planner",
    "list_schedule": "planners.list_schedule",
    "local_search": "planners.local_search",
    "m_etf": "planners.m_etf",
    "m_sct": "planners.m_sct",
    "m_topo": "planners.m_topo",
    "mars": "agents.mars.learner",
    "memetic": "planners.simulated_memetic",
    "metis": "planners.metis",
    "mincut": "planners.scotch",
    "peft": "planners.peft",
    "placeto": "agents.placeto.learner",
    "post": "agents.post.learner",
    "random": "planners.random_search",
    "regal": "agents.regal.learner",
    "scotch": "planners.scotch",
    "single": "planners.single_device",
    "tabular": "agents.tabular.learner",
    "tf_default": "planners.tf_default",
    "topological_fill": "planners.topological_fill",
}
# Those with a role that flags have as their defaults; a test holds them equal to the rows.
DEFAULT = "auto"
COMPARED = ("single", "random", DEFAULT)
BUILT_IN = tuple(sorted([*MODULES, DEFAULT]))


def methods() -> tuple[str, ...]:
    """Names of all search methods, sorted, those that were added included: what ``search`` takes as ``method``."""
    table = sys.modules.get(_TABLE)
    return BUILT_IN if table is None else tuple(table.names())


def check_name(name: str) -> None:
    """Raises InputError unless a method has this name; the message gives the nearest ones."""
    if name not in methods():
        raise InputError(f"no method is called {name!r}; {nearest(name, methods())}")
