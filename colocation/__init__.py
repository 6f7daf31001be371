"""Which ops of a TensorFlow graph must, or had better, share a device."""

from colocation.constraints import Merge
from colocation.graph_index import GraphIndex, index_graph
from colocation.heuristics import (
    attach_constants,
    attach_metadata,
    default_groups,
    name_scope,
    single_consumer,
)
from colocation.units import Heuristic, Units, form_units

__all__ = [
    "GraphIndex",
    "Heuristic",
    "Merge",
    "Units",
    "attach_constants",
    "attach_metadata",
    "default_groups",
    "form_units",
    "index_graph",
    "name_scope",
    "single_consumer",
]
