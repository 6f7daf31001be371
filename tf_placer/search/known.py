"""Names of methods, known without TensorFlow, which the methods import: flags are checked with them."""

from __future__ import annotations

import sys

from tf_placer.arguments import nearest
from tf_placer.errors import InputError

_TABLE = "tf_placer.search.methods"

# Those that come with tf_placer, beside the portfolio of them: the module where each has its row, a ``MethodSpec``.
MODULES = {
    "brkga": "tf_placer.planners.brkga",
    "cem": "tf_placer.planners.cem",
    "colocrl": "tf_placer.agents.colocrl.learner",
    "cp_sat": "tf_placer.planners.cp_sat",
    "cpu_only": "tf_placer.planners.cpu_only",
    "expert": "tf_placer.planners.expert",
    "go": "tf_placer.agents.go.learner",
    "go_zero_shot": "tf_placer.agents.go.zero_shot",
    "hdp": "tf_placer.agents.hdp.learner",
    "heft": "tf_placer.planners.heft",
    "learned_list": "tf_placer.agents.learned_list.planner",
    "list_schedule": "tf_placer.planners.list_schedule",
    "local_search": "tf_placer.planners.local_search",
    "m_etf": "tf_placer.planners.m_etf",
    "m_sct": "tf_placer.planners.m_sct",
    "m_topo": "tf_placer.planners.m_topo",
    "mars": "tf_placer.agents.mars.learner",
    "memetic": "tf_placer.planners.simulated_memetic",
    "metis": "tf_placer.planners.metis",
    "mincut": "tf_placer.planners.scotch",
    "peft": "tf_placer.planners.peft",
    "placeto": "tf_placer.agents.placeto.learner",
    "post": "tf_placer.agents.post.learner",
    "random": "tf_placer.planners.random_search",
    "regal": "tf_placer.agents.regal.learner",
    "scotch": "tf_placer.planners.scotch",
    "single": "tf_placer.planners.single_device",
    "tabular": "tf_placer.agents.tabular.learner",
    "tf_default": "tf_placer.planners.tf_default",
    "topological_fill": "tf_placer.planners.topological_fill",
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
