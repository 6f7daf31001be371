"""Colocation of ops: those of a TensorFlow graph that must share a device, and those that should."""

from colocation.constraints import Merge
from colocation.op_facts import GraphIndex
from colocation.op_facts import index_graph
from colocation.units import attach_constants
from colocation.units import attach_pools
from colocation.units import default_groups
from colocation.units import name_scope
from colocation.units import single_consumer
from colocation.units import Heuristic
from colocation.units import Units
from colocation.units import extend_units
from colocation.units import form_units
from colocation.units import unrolled_calls

__all__ = [
    "GraphIndex",
    "Heuristic",
    "Merge",
    "Units",
    "attach_constants",
    "attach_pools",
    "default_groups",
    "extend_units",
    "form_units",
    "index_graph",
    "name_scope",
    "single_consumer",
    "unrolled_calls",
]
