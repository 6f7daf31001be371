"""Networks that describe each node of a graph by what is around it."""

from tf_placer.encoder.graph_sage import GraphSage

__all__ = ["GraphSage"]
