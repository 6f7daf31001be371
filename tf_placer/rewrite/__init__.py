"""Placements written back into TensorFlow programs."""

from tf_placer.rewrite.graph_def import place_graph

__all__ = ["place_graph"]
