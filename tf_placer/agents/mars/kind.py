"""Which encoders of Mars can take each other's weights."""

from __future__ import annotations

from tf_placer.agents.features import RELATIVE_VERSION
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.unit_encoder import UnitEncoder
from tf_placer.agents.weights import PolicyKind

# Of the networks' shape: variables that were saved with another one cannot be restored.
NETWORK_VERSION = 1

_SHAPING = ("type_embedding", "encoder_width", "encoder_layers")


def mars_kind(config: MarsConfig) -> PolicyKind:
    """The kind of the encoder of a ``MarsPolicy`` with these settings."""
    settings = {name: getattr(config, name) for name in _SHAPING}
    versions = {"network": NETWORK_VERSION, "relative features": RELATIVE_VERSION}
    return PolicyKind(UnitEncoder.__name__, versions, settings)
