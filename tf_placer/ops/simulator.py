"""Simulates batches of placements with the C++ op, eagerly or inside a ``tf.function``."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.base.arguments import InputError, exact
from tf_placer.ops.library import library

_INT32 = "unit_of_op priority tensor_producer alias_of_tensor consumer_offset consumer_op streams"
_PAIRS = "latency_ns bytes_per_s tensor_ns send_ns send_ps_per_byte receive_ns receive_ps_per_byte"
# Name -> type and rank.
_ARRAYS: dict[str, tuple[type, int]] = {
    **dict.fromkeys(_INT32.split(), (np.int32, 1)),
    **dict.fromkeys(("tensor_bytes", "resident_bytes", "join_ns", "dispatch_ns"), (np.int64, 1)),
    **{f"link_{name}": (np.int64, 2) for name in _PAIRS.split()},
    "newest_first": (np.bool_, 1),
    "compute_ns": (np.int64, 2),
    "channel_of_link": (np.int32, 2),
}


# Stand for arrays that are 0 for every device, and for every pair, however many there are.
_none, _no_pairs = (functools.partial(np.zeros, shape, np.int64) for shape in (0, (0, 0)))


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatorInputs:
    """Everything the simulator needs but the placements; copied, of the stated type, and read-only.

    Ops are in topological order. A tensor is one output of one op; a control dependency is a tensor
    of 0 bytes. The op checks the values and names the position of the first wrong one.
    """

    unit_of_op: np.ndarray  # [N] int32, in [0, U)
    compute_ns: np.ndarray  # [N, D] int64, time of each op on each device; 0 = free
    priority: np.ndarray  # [N] int32, lower runs first among the ready ops of a device
    tensor_producer: np.ndarray  # [T] int32, ascending
    tensor_bytes: np.ndarray  # [T] int64
    consumer_offset: np.ndarray  # [T + 1] int32, where each tensor's consumers begin in ``consumer_op``
    consumer_op: np.ndarray  # [E] int32, distinct and ascending within a tensor, after its producer
    resident_bytes: np.ndarray  # [U] int64, memory that stays on the unit's device
    streams: np.ndarray  # [D] int32, ops that a device runs at once
    link_latency_ns: np.ndarray  # [D, D] int64 from source to target; the diagonal is not read
    link_bytes_per_s: np.ndarray  # [D, D] int64; the diagonal is not read
    channel_of_link: np.ndarray  # [D, D] int32, transfers of one channel queue; -1 on the diagonal
    # [T] int32, the input of its producer whose memory a tensor has on the device where it is made, a tensor
    # before it; the tensor itself where its memory is there for the whole step; -1, or an empty array for all,
    # where it has memory of its own. Copies that other devices receive always have. A tensor of 0 bytes has none.
    alias_of_tensor: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    # [D] bool, whether a device runs the op first that became ready last, and has what it sends wait among
    # the ops; False without
    newest_first: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))
    # [D] int64, what a step takes longer when the device runs an op that takes time, the most of them; 0
    # without
    join_ns: np.ndarray = dataclasses.field(default_factory=_none)
    # [D] int64, time of the host for each op that takes time on the device, one after the other; 0 without
    dispatch_ns: np.ndarray = dataclasses.field(default_factory=_none)
    # [D, D] int64, from the end of a transfer until its tensor is there; 0 without
    link_tensor_ns: np.ndarray = dataclasses.field(default_factory=_no_pairs)
    # link_send_ns, link_send_ps_per_byte: [D, D] int64, time of the source that sending a tensor takes, and
    # picoseconds of it per byte; 0 without
    link_send_ns: np.ndarray = dataclasses.field(default_factory=_no_pairs)
    link_send_ps_per_byte: np.ndarray = dataclasses.field(default_factory=_no_pairs)
    # link_receive_ns, link_receive_ps_per_byte: [D, D] int64, of the target, alike
    link_receive_ns: np.ndarray = dataclasses.field(default_factory=_no_pairs)
    link_receive_ps_per_byte: np.ndarray = dataclasses.field(default_factory=_no_pairs)

    def __post_init__(self) -> None:
        for name, (dtype, rank) in _ARRAYS.items():
            value = getattr(self, name)
            if name in ("newest_first", "join_ns", "dispatch_ns") and np.shape(value) == (0,):
                value = np.zeros(self.num_devices, dtype)
            if name == "alias_of_tensor" and np.shape(value) == (0,):
                value = np.full(len(self.tensor_producer), -1, dtype)
            if np.shape(value) == (0, 0):
                value = np.zeros((self.num_devices, self.num_devices), np.int64)
            copy: np.ndarray = np.array(exact(f"SimulatorInputs.{name}", value, dtype), order="C")
            if copy.ndim != rank:
                raise InputError(
                    f"SimulatorInputs.{name}: expected {rank} dimensions, got shape {copy.shape}"
                )
            copy.setflags(write=False)
            object.__setattr__(self, name, copy)

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
        """The arrays as CPU tensors, made once: the op prepares anew for every other tensor."""
        with tf.init_scope(), tf.device("CPU:0"):
            return {name: tf.constant(getattr(self, name)) for name in _ARRAYS}


class Simulation(NamedTuple):
    """What placements cost."""

    runtime_ns: tf.Tensor  # [B] int64
    peak_bytes: tf.Tensor  # [B, D] int64


class SimulatedStep(NamedTuple):
    """All that happens in a step of each placement. A tensor that crosses is sent, crosses and is received."""

    runtime_ns: tf.Tensor  # [B] int64
    peak_bytes: tf.Tensor  # [B, D] int64
    start_ns: tf.Tensor  # [B, N] int64
    end_ns: tf.Tensor  # [B, N] int64
    leg_start_ns: tf.Tensor  # [B, 3, T, D] int64, of each tensor to each device; -1 for what does not happen
    leg_end_ns: tf.Tensor  # [B, 3, T, D] int64


class Schedule(NamedTuple):
    """When each op of each placement starts and ends."""

    start_ns: tf.Tensor  # [B, N] int64
    end_ns: tf.Tensor  # [B, N] int64


def simulate(
    inputs: SimulatorInputs, device_of_unit: tf.Tensor, priority_of_op: tf.Tensor | None = None
) -> Simulation:
    """Simulates a batch of placements, on TensorFlow's own threads.

    Args:
      inputs: the graph and the cluster; keep and reuse it, since what the op prepares from it (about
        the cost of one simulation) is kept as long as it is given the same object.
      device_of_unit: [B, U] int32, in [0, D).
      priority_of_op: [B, N] int32, lower runs first among the ready ops of a device; the inputs' own ``priority`` then
        breaks ties only.

    Raises:
      tf.errors.InvalidArgumentError: an array has a wrong shape or value; the message names it.
    """
    runtime_ns, peak_bytes, *_ = _run(inputs, device_of_unit, priority_of_op, with_schedule=False)
    return Simulation(runtime_ns, peak_bytes)


def simulate_schedule(
    inputs: SimulatorInputs, device_of_unit: tf.Tensor, priority_of_op: tf.Tensor | None = None
) -> Schedule:
    """As ``simulate``, giving the schedule: for reports, and to see why a placement takes its time."""
    _, _, start_ns, end_ns, *_ = _run(inputs, device_of_unit, priority_of_op, with_schedule=True)
    return Schedule(start_ns, end_ns)


def simulate_step(
    inputs: SimulatorInputs, device_of_unit: tf.Tensor, priority_of_op: tf.Tensor | None = None
) -> SimulatedStep:
    """As ``simulate_schedule``, giving also what crosses and when: 48 bytes for each tensor, device and placement."""
    return SimulatedStep(*_run(inputs, device_of_unit, priority_of_op, with_schedule=True, with_legs=True))


def _run(
    inputs: SimulatorInputs,
    device_of_unit: tf.Tensor,
    priority_of_op: tf.Tensor | None,
    with_schedule: bool,
    with_legs: bool = False,
) -> tuple[tf.Tensor, ...]:
    with tf.device("CPU:0"):
        if priority_of_op is None:
            priority_of_op = tf.zeros([0, inputs.num_ops], tf.int32)
        return library().tf_placer_simulate_placements(
            device_of_unit=tf.convert_to_tensor(device_of_unit, tf.int32),
            priority_of_op=tf.convert_to_tensor(priority_of_op, tf.int32),
            with_schedule=with_schedule,
            with_legs=with_legs,
            **inputs.tensors,
        )
