"""Which policies of GO can take each other's weights."""

from __future__ import annotations

from tf_placer.agents.features import RELATIVE_VERSION
from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.policy import GoPolicy
from tf_placer.agents.weights import PolicyKind

# Of the networks' shape: variables that were saved with another one cannot be restored.
NETWORK_VERSION = 1

_SHAPING = (
    "type_embedding",
    "graph_width",
    "graph_layers",
    "width",
    "layers",
    "heads",
    "head_width",
    "inner_width",
    "modulation",
    "device_state",
)


def go_kind(config: GoConfig) -> PolicyKind:
    """The kind of a ``GoPolicy`` with these settings."""
    settings = {name: getattr(config, name) for name in _SHAPING}
    versions = {"network": NETWORK_VERSION, "relative features": RELATIVE_VERSION}
    return PolicyKind(GoPolicy.__name__, versions, settings)
