"""Networks that read whole graphs."""

from tf_placer.encoder.deep_graph_infomax import DeepGraphInfomax
from tf_placer.encoder.graph_convolution import GraphConvolution
from tf_placer.encoder.graph_sage import GraphSage

__all__ = ["DeepGraphInfomax", "GraphConvolution", "GraphSage"]
