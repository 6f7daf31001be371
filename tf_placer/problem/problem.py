"""The optimization problem: ops with costs, tensors with bytes, units to place."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.cluster.cluster import Cluster


@dataclasses.dataclass(frozen=True)
class Problem:
    """Everything a search needs, as arrays; no TensorFlow graph inside.

    N ops in topological order are simulated; the U units they belong to are placed. A
    tensor is one output of one op and crosses to a device at most once; a control
    dependency is a tensor of 0 bytes.

    Attributes:
      name: what it is called in reports.
      cluster: the D devices and their links.
      unit_of_op: [N] int32, in [0, U).
      compute_ns: [N, D] int64, time of each op on each device; 0 = free.
      tensor_producer: [T] int32, ascending.
      tensor_bytes: [T] int64.
      consumer_offset: [T + 1] int32; ``consumer_op[consumer_offset[t]:consumer_offset[t + 1]]``
        are the distinct ops that wait for tensor t, ascending.
      consumer_op: [E] int32.
      resident_bytes: [U] int64, memory that stays on the unit's device (variables).
      allowed: [U, D] bool, devices that have kernels for every op of the unit.
      priority: [N] int32, lower runs first among the ready ops of a device.
      op_names: [N] op names.
      op_types: [N] TensorFlow op types ("" when unknown).
      fingerprint: hex digest of the graph this was built from.
    """

    name: str
    cluster: Cluster
    unit_of_op: np.ndarray
    compute_ns: np.ndarray
    tensor_producer: np.ndarray
    tensor_bytes: np.ndarray
    consumer_offset: np.ndarray
    consumer_op: np.ndarray
    resident_bytes: np.ndarray
    allowed: np.ndarray
    priority: np.ndarray
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    fingerprint: str
