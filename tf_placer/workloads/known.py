"""Names of workloads, known without TensorFlow, which the families import: flags are checked with them."""

from __future__ import annotations

import sys

from tf_placer.arguments import nearest
from tf_placer.errors import InputError

_REGISTRY = "tf_placer.workloads.registry"

# Of all that come with tf_placer. A test holds it equal to the registry's table.
BUILT_IN = (
    "amoebanet",
    "amoebanet_forward",
    "amoebanet_small",
    "amoebanet_small_forward",
    "bert_base",
    "bert_base_forward",
    "bert_base_small",
    "bert_base_small_forward",
    "bert_large",
    "bert_large_forward",
    "bert_large_small",
    "bert_large_small_forward",
    "branches_small",
    "dense_small",
    "gnmt_2",
    "gnmt_2_forward",
    "gnmt_2_small",
    "gnmt_2_small_forward",
    "gnmt_4",
    "gnmt_4_forward",
    "gnmt_4_small",
    "gnmt_4_small_forward",
    "gnmt_8",
    "gnmt_8_forward",
    "gnmt_8_small",
    "gnmt_8_small_forward",
    "inception_v3",
    "inception_v3_b1",
    "inception_v3_b1_forward",
    "inception_v3_b64",
    "inception_v3_b64_forward",
    "inception_v3_forward",
    "inception_v3_small",
    "inception_v3_small_forward",
    "lstm_lm_small",
    "nasnet",
    "nasnet_forward",
    "nasnet_small",
    "nasnet_small_forward",
    "nmt_2",
    "nmt_2_forward",
    "nmt_2_small",
    "nmt_2_small_forward",
    "nmt_4",
    "nmt_4_forward",
    "nmt_4_small",
    "nmt_4_small_forward",
    "nmt_8",
    "nmt_8_forward",
    "nmt_8_small",
    "nmt_8_small_forward",
    "resnet50",
    "resnet_152",
    "resnet_152_forward",
    "resnet_152_small",
    "resnet_152_small_forward",
    "rnnlm_2",
    "rnnlm_2_forward",
    "rnnlm_2_small",
    "rnnlm_2_small_forward",
    "rnnlm_4",
    "rnnlm_4_forward",
    "rnnlm_4_small",
    "rnnlm_4_small_forward",
    "rnnlm_8",
    "rnnlm_8_forward",
    "rnnlm_8_small",
    "rnnlm_8_small_forward",
    "transformer_small",
    "transformer_xl_2",
    "transformer_xl_2_forward",
    "transformer_xl_2_small",
    "transformer_xl_2_small_forward",
    "transformer_xl_4",
    "transformer_xl_4_forward",
    "transformer_xl_4_small",
    "transformer_xl_4_small_forward",
    "transformer_xl_8",
    "transformer_xl_8_forward",
    "transformer_xl_8_small",
    "transformer_xl_8_small_forward",
    "two_towers",
    "wavenet_2x18",
    "wavenet_2x18_forward",
    "wavenet_2x18_small",
    "wavenet_2x18_small_forward",
    "wavenet_4x36",
    "wavenet_4x36_forward",
    "wavenet_4x36_small",
    "wavenet_4x36_small_forward",
)


def names() -> tuple[str, ...]:
    """Returns the names of all workloads, sorted: where something was registered, the registry knows."""
    registry = sys.modules.get(_REGISTRY)
    return BUILT_IN if registry is None else tuple(registry.names())


def check_name(name: str) -> None:
    """Raises InputError unless a workload has this name; the message gives the nearest ones."""
    if name not in names():
        raise InputError(f"no workload is called {name!r}; {nearest(name, names())}")
