"""Units as Mars' placer sees them: by type and relative costs, and by what is around them."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import NUM_TYPES, RELATIVE_VERSION
from tf_placer.agents.graph_inputs import GraphInputs
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.weights import PolicyKind
from tf_placer.encoder.graph_convolution import GraphConvolution


class UnitEncoder(snt.Module):
    """h = GCN([row of its op type, relative features]) of each unit.

    Nothing in it is of one graph, so weights that were learned on some serve others.
    """

    def __init__(self, type_width: int, width: int, layers: int):
        """Creates the layers.

        Args:
          type_width: of an op type's row.
          width: H, of the GCN.
          layers: of the GCN.
        """
        super().__init__(name="unit_encoder")
        self._types = snt.Embed(NUM_TYPES, type_width, name="types")
        self._network = GraphConvolution(width, layers, name="convolution")
        self.width = width

    def features(self, graph: GraphInputs) -> tf.Tensor:
        """[U, F] what the GCN reads of each unit."""
        # Rows are drawn as small as if a layer read the type as one column of many: 1 / sqrt(NUM_TYPES).
        rows = self._types(graph.type_of_unit) * (0.5 * NUM_TYPES**0.5)
        return tf.concat([rows, graph.relative_features], axis=1)

    def encode(self, features: tf.Tensor, graph: GraphInputs) -> tf.Tensor:
        """[U, H] from features [U, F], which need not be those of the graph."""
        return self._network(features, graph.edges)

    def __call__(self, graph: GraphInputs) -> tf.Tensor:
        """[U, H]."""
        return self.encode(self.features(graph), graph)


# Of the networks' shape: variables that were saved with another one cannot be restored.
NETWORK_VERSION = 1

_SHAPING = ("type_embedding", "encoder_width", "encoder_layers")


def mars_kind(config: MarsConfig) -> PolicyKind:
    """The kind of the encoder of a ``MarsPolicy`` with these settings."""
    settings = {name: getattr(config, name) for name in _SHAPING}
    versions = {"network": NETWORK_VERSION, "relative features": RELATIVE_VERSION}
    return PolicyKind(UnitEncoder.__name__, versions, settings)
