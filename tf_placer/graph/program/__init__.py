"""``Program``: a graph with its inputs, results, side effects and variables. Reading makes it, cleaning changes it."""

from tf_placer.graph.program.program import Feed
from tf_placer.graph.program.program import HostCapture
from tf_placer.graph.program.program import ItemVariable
from tf_placer.graph.program.program import Program
from tf_placer.graph.program.program import check_restorable
from tf_placer.graph.program.program import fresh_name
from tf_placer.graph.program.program import renamed_input
from tf_placer.graph.program.program import renamed_node
from tf_placer.graph.program.program import with_nodes
from tf_placer.graph.program.program import with_output

__all__ = [
    "Feed",
    "HostCapture",
    "ItemVariable",
    "Program",
    "check_restorable",
    "fresh_name",
    "renamed_input",
    "renamed_node",
    "with_nodes",
    "with_output",
]
