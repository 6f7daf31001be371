"""Places nodes one after the other by rules of list scheduling, with the C++ op."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tf_placer.ops.library import library

# As tf_placer/ops/cc/list_policy.h has them, which says what each is.
FEATURES = (
    "slowness",
    "load",
    "overfull",
    "balance",
    "rival",
    "transfer",
    "any_transfer",
    "affinity",
    "any_affinity",
    "indirect",
    "memory",
    "full",
    "unused",
    "last",
)
CONTEXT = ("one", "slack", "work", "problem_traffic", "parallel", "traffic", "open", "tightness")
ORDER = ("place", "work", "slack", "bytes")
NUM_COEFFICIENTS = len(FEATURES) * len(CONTEXT) + len(ORDER) - 1
"""P, of a rule: of each feature in each context, then of what the order depends on, but the place."""


@dataclasses.dataclass(frozen=True, eq=False)
class ListInputs:
    """A graph of V nodes and a cluster of D devices, in numbers without units; the op checks shapes and indices."""

    legal: np.ndarray  # [V, D] bool, at least one True in each row
    work: np.ndarray  # [V, D] float64, of a node on a device, over what a device has to do in the mean
    slowness: np.ndarray  # [V, D] float64, logarithm of a node's time on a device over that on its fastest
    memory: np.ndarray  # [V, D] float64, what a node needs, over what the device holds
    # [V, T] float64, when in the step the work of a node could be done. The product of the windows of two
    # nodes is how much of the one falls into the time of the other.
    window: np.ndarray
    # [V, C] float64, what coefficients depend on; that of "open" is made anew for each decision
    context: np.ndarray
    order_features: np.ndarray  # [V, K] float64, what the order depends on
    neighbor_offset: np.ndarray  # [V + 1] int32, where each node's neighbors begin
    neighbor: np.ndarray  # [E] int32; each of two neighbors has the other
    neighbor_bytes: np.ndarray  # [E] float64, that flow between them, either way: the same at both ends
    # [D, D] float64, what a message takes beside its bytes, over the time of the step; 0 on the diagonal
    link_fixed: np.ndarray
    link_per_byte: np.ndarray  # [D, D] float64, what a byte takes, alike

    @functools.cached_property
    def tensors(self) -> dict[str, tf.Tensor]:
        """The op's inputs by name."""
        return {field.name: tf.constant(getattr(self, field.name)) for field in dataclasses.fields(self)}


def place_by_list(inputs: ListInputs, coefficients: np.ndarray, passes: int) -> np.ndarray:
    """Places by a batch of rules, on TensorFlow's own threads.

    Args:
      inputs: the graph and the cluster.
      coefficients: [B, P] float64.
      passes: how often each node is decided, at least once; after the first time all others are in their places.

    Returns:
      [B, V] int32 legal devices.

    Raises:
      tf.errors.InvalidArgumentError: an array has a wrong shape or index; the message names it.
    """
    with tf.device("CPU:0"):
        placed = library().tf_placer_place_by_list(
            coefficients=tf.constant(coefficients, tf.float64), passes=passes, **inputs.tensors
        )
    devices: np.ndarray = placed.numpy()
    return devices
