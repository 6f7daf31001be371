"""``Item``: one self-contained graph and where it comes from."""

from tf_placer.graph.item import Item
from tf_placer.graph.sizes.output_specs import OutputSpec
from tf_placer.graph.program import Feed
from tf_placer.graph.program import HostCapture
from tf_placer.graph.program import ItemVariable
from tf_placer.graph.program import Program

__all__ = ["Feed", "HostCapture", "Item", "ItemVariable", "OutputSpec", "Program"]
