"""Features of a problem for every agent: columns and names that mean the same on every graph and cluster."""

from tf_placer.agents.features.relative_features import DEVICE_NUMBERS
from tf_placer.agents.features.relative_features import DEVICE_WIDTH
from tf_placer.agents.features.relative_features import device_features
from tf_placer.agents.features.relative_features import device_numbers
from tf_placer.agents.features.relative_features import load_and_slowness
from tf_placer.agents.features.unit_features import Levels
from tf_placer.agents.features.unit_features import op_levels
from tf_placer.agents.features.unit_features import FEATURES_VERSION
from tf_placer.agents.features.unit_features import NUM_TYPES
from tf_placer.agents.features.unit_features import type_numbers
from tf_placer.agents.features.relative_features import RELATIVE_VERSION
from tf_placer.agents.features.relative_features import RELATIVE_WIDTH
from tf_placer.agents.features.relative_features import relative_features
from tf_placer.agents.features.unit_features import costliest_op
from tf_placer.agents.features.unit_features import unit_features

__all__ = [
    "DEVICE_NUMBERS",
    "DEVICE_WIDTH",
    "FEATURES_VERSION",
    "NUM_TYPES",
    "RELATIVE_VERSION",
    "RELATIVE_WIDTH",
    "Levels",
    "costliest_op",
    "device_features",
    "device_numbers",
    "load_and_slowness",
    "op_levels",
    "relative_features",
    "type_numbers",
    "unit_features",
]
