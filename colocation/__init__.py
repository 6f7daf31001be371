"""Colocation of ops: those of a TensorFlow graph that must share a device, and those that should."""

from colocation.constraints import Merge
from colocation.op_facts import GraphIndex
from colocation.op_facts import index_graph
from colocation.heuristics import attach_constants
from colocation.heuristics import attach_metadata
from colocation.heuristics import attach_pools
from colocation.heuristics import default_groups
from colocation.heuristics import name_scope
from colocation.heuristics import single_consumer
from colocation.units import Heuristic
from colocation.units import Units
from colocation.units import extend_units
from colocation.units import form_units
from colocation.heuristics import unrolled_calls

__all__ = [
    "GraphIndex",
    "Heuristic",
    "Merge",
    "Units",
    "attach_constants",
    "attach_metadata",
    "attach_pools",
    "default_groups",
    "extend_units",
    "form_units",
    "index_graph",
    "name_scope",
    "single_consumer",
    "unrolled_calls",
]
