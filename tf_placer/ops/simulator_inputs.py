"""The arrays of one graph and one cluster that placements are simulated on."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tf_placer.errors import InputError
from tf_placer.exact import exact


def _no_chores() -> np.ndarray:
    """Stands for an array that is 0 for every pair of devices, however many there are."""
    return np.zeros((0, 0), np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatorInputs:
    """Everything the simulator needs but the placements; copied, of the stated type, and read-only.

    Ops are in topological order. A tensor is one output of one op; a control dependency is a tensor
    of 0 bytes. The op checks the values and names the position of the first wrong one.

    Attributes:
      unit_of_op: [N] int32, in [0, U).
      compute_ns: [N, D] int64, time of each op on each device; 0 = free.
      priority: [N] int32, lower runs first among the ready ops of a device.
      tensor_producer: [T] int32, ascending.
      tensor_bytes: [T] int64.
      alias_of_tensor: [T] int32, the input of its producer whose memory a tensor has on the device where it is made,
        a tensor before it; -1, or an empty array for all, where it has memory of its own. Copies that other devices
        receive always have. A tensor of 0 bytes has none.
      consumer_offset: [T + 1] int32, where each tensor's consumers begin in ``consumer_op``.
      consumer_op: [E] int32, distinct and ascending within a tensor, after its producer.
      resident_bytes: [U] int64, memory that stays on the unit's device.
      streams: [D] int32, ops that a device runs at once.
      newest_first: [D] bool, whether a device runs the op first that became ready last, and has what it sends wait
        among the ops; False without.
      join_ns: [D] int64, what a step takes longer when the device runs an op that takes time, the most of them; 0
        without.
      link_latency_ns: [D, D] int64 from source to target; the diagonal is not read.
      link_bytes_per_s: [D, D] int64; the diagonal is not read.
      channel_of_link: [D, D] int32, transfers of one channel queue; -1 on the diagonal.
      link_send_ns, link_send_ps_per_byte: [D, D] int64, time of the source that sending a tensor takes,
        and picoseconds of it per byte; 0 without.
      link_receive_ns, link_receive_ps_per_byte: [D, D] int64, of the target, alike.

    Raises:
      InputError: an array has the wrong number of dimensions, or is not of whole numbers.
    """

    unit_of_op: np.ndarray
    compute_ns: np.ndarray
    priority: np.ndarray
    tensor_producer: np.ndarray
    tensor_bytes: np.ndarray
    consumer_offset: np.ndarray
    consumer_op: np.ndarray
    resident_bytes: np.ndarray
    streams: np.ndarray
    link_latency_ns: np.ndarray
    link_bytes_per_s: np.ndarray
    channel_of_link: np.ndarray
    alias_of_tensor: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    newest_first: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))
    join_ns: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    link_send_ns: np.ndarray = dataclasses.field(default_factory=_no_chores)
    link_send_ps_per_byte: np.ndarray = dataclasses.field(default_factory=_no_chores)
    link_receive_ns: np.ndarray = dataclasses.field(default_factory=_no_chores)
    link_receive_ps_per_byte: np.ndarray = dataclasses.field(default_factory=_no_chores)

    def __post_init__(self) -> None:
        for name, (dtype, rank) in _ARRAYS.items():
            value = getattr(self, name)
            if name in ("newest_first", "join_ns") and np.shape(value) == (0,):
                value = np.zeros(self.num_devices, dtype)
            if name == "alias_of_tensor" and np.shape(value) == (0,):
                value = np.full(len(self.tensor_producer), -1, dtype)
            if np.shape(value) == (0, 0):
                value = np.zeros((self.num_devices, self.num_devices), np.int64)
            object.__setattr__(self, name, _exact(name, value, dtype, rank))

    @property
    def num_ops(self) -> int:
        return len(self.unit_of_op)

    @property
    def num_units(self) -> int:
        return len(self.resident_bytes)

    @property
    def num_devices(self) -> int:
        return len(self.streams)

    @functools.cached_property
    def tensors(self) -> dict[str, tf.Tensor]:
        """The arrays as CPU tensors, made once: the op prepares anew whenever it is given others."""
        with tf.init_scope(), tf.device("CPU:0"):
            return {name: tf.constant(getattr(self, name)) for name in _ARRAYS}


_ARRAYS = {
    "unit_of_op": (np.int32, 1),
    "compute_ns": (np.int64, 2),
    "priority": (np.int32, 1),
    "tensor_producer": (np.int32, 1),
    "tensor_bytes": (np.int64, 1),
    "alias_of_tensor": (np.int32, 1),
    "consumer_offset": (np.int32, 1),
    "consumer_op": (np.int32, 1),
    "resident_bytes": (np.int64, 1),
    "streams": (np.int32, 1),
    "newest_first": (np.bool_, 1),
    "join_ns": (np.int64, 1),
    "link_latency_ns": (np.int64, 2),
    "link_bytes_per_s": (np.int64, 2),
    "channel_of_link": (np.int32, 2),
    "link_send_ns": (np.int64, 2),
    "link_send_ps_per_byte": (np.int64, 2),
    "link_receive_ns": (np.int64, 2),
    "link_receive_ps_per_byte": (np.int64, 2),
}


def _exact(name: str, value: np.ndarray, dtype: type, rank: int) -> np.ndarray:
    """A read-only copy of ``value`` as ``dtype``."""
    copy: np.ndarray = np.array(exact(f"SimulatorInputs.{name}", value, dtype), order="C")
    if copy.ndim != rank:
        raise InputError(f"SimulatorInputs.{name}: expected {rank} dimensions, got shape {copy.shape}")
    copy.setflags(write=False)
    return copy
