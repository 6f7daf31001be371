"""The simulator, eagerly or inside a ``tf.function``, and local search in it, as C++ ops with typed wrappers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
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

# What the orders of a search may differ in; all else is one graph on one cluster.
PER_ORDER = ("priority", "newest_first", "compute_ns", "dispatch_ns", "link_bytes_per_s", "link_tensor_ns")

NEVER = 2**63 - 1
"""Time of a placement that does not fit."""
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
    """A simulated step of each placement: time, peaks and, on request, all events."""

    runtime_ns: tf.Tensor  # [B] int64
    peak_bytes: tf.Tensor  # [B, D] int64
    # [B, N] int64, of ops; without entries unless asked for
    start_ns: tf.Tensor
    end_ns: tf.Tensor
    # [B, 3, T, D] int64, of each tensor to each device: sent, crossing and received; -1 for what does not happen;
    # without entries unless asked for
    leg_start_ns: tf.Tensor
    leg_end_ns: tf.Tensor


def simulate(
    inputs: SimulatorInputs,
    device_of_unit: tf.Tensor,
    priority_of_op: tf.Tensor | None = None,
    with_schedule: bool = False,
    with_legs: bool = False,
) -> Simulation:
    """Simulates a batch of placements, on TensorFlow's own threads.

    Args:
      inputs: the graph and the cluster; keep and reuse it, since what the op prepares from it (about
        the cost of one simulation) is kept as long as it is given the same object.
      device_of_unit: [B, U] int32, in [0, D).
      priority_of_op: [B, N] int32, lower runs first among the ready ops of a device; the inputs' own ``priority`` then
        breaks ties only.
      with_schedule: also when each op starts and ends.
      with_legs: also that, and what crosses and when: 48 bytes for each tensor, device and placement.

    Raises:
      tf.errors.InvalidArgumentError: an array has a wrong shape or value; the message names it.
    """
    with tf.device("CPU:0"):
        if priority_of_op is None:
            priority_of_op = tf.zeros([0, inputs.num_ops], tf.int32)
        outputs = library().tf_placer_simulate_placements(
            device_of_unit=tf.convert_to_tensor(device_of_unit, tf.int32),
            priority_of_op=tf.convert_to_tensor(priority_of_op, tf.int32),
            with_schedule=with_schedule or with_legs,
            with_legs=with_legs,
            **inputs.tensors,
        )
        return Simulation(*outputs)


@dataclasses.dataclass(frozen=True, eq=False)
class MoveTables:
    """What moves are drawn from (tf_placer/ops/cc/moves.h); the op checks the values. Chances are of 2^32."""

    edges: np.ndarray  # [E, 2] int32 pairs of units; a piece may grow from an end of one that crosses devices
    neighbor_offset: np.ndarray  # [U + 1] int32, where each unit's neighbors begin
    neighbors: np.ndarray  # [K] int32, units that a piece may grow to
    # [U + 1] int64, ascending from 0; a unit is drawn in proportion to the step from its number to the next
    work_before: np.ndarray
    piece_sizes: np.ndarray  # [S] int32, drawn from
    allowed: np.ndarray  # [U, D] bool, where a unit may be
    kind_of_unit: np.ndarray  # [U] int32, any numbers
    part_of_unit: np.ndarray  # [U] int32, the part of the batch that a unit is a copy for, -1 for none
    # [U, P] int32, a unit's copy for each other part, -1 for none; no columns where the batch is whole
    copies: np.ndarray
    turned: np.ndarray  # [D, P] int32, the device so many places after each among those of its type, around
    crossing_chance: int  # that a piece grows from an end of an edge that crosses
    towards_chance: int  # that such a piece goes to the device of the other end
    swap_chance: int  # that a piece of the target comes back for it
    kind_chance: int  # that the pieces of a move are each of units of one kind
    copies_chance: int  # that the copies of a piece go along, and nothing comes back
    together_chance: int  # that they go to the piece's device, and not as many places on as their parts
    # that a piece grows from the critical path of where the chain is; only the C++ draws such moves
    path_chance: int = 0
    order_chance: int = 0  # that a round changes the order first, on the critical path; 0 for no search of it
    # of each round, of which the one is tried that the network scores highest; only the C++ has more than one
    draws: int = 1
    uniform_chance: int = 0  # that a round draws one alone
    # [W] float32 of the network (tf_placer/ops/cc/edit_scorer.h), or none
    scorer_weights: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.float32))


class Chains(NamedTuple):
    """Where C chains are: all that one call leaves for the next."""

    device_of_unit: np.ndarray  # [C, U] int32, where each chain is
    best_device_of_unit: np.ndarray  # [C, U] int32, the fastest it was at
    late_ns: np.ndarray  # [C, L] int64, where it was in its last L rounds, or better; a ring
    # [C, 4] int64: time of where it is, time of the fastest, rounds made, state of its random numbers
    counts: np.ndarray
    # [C, N] int32, the order that each chain has come to, below 0 where devices wait for the next op; and of the
    # fastest. Empty where chains decide no order.
    priority_of_op: np.ndarray = np.zeros((0, 0), np.int32)
    best_priority_of_op: np.ndarray = np.zeros((0, 0), np.int32)

    @property
    def best_runtime_ns(self) -> np.ndarray:
        """[C] int64, summed over the orders; ``NEVER`` where no placement fitted."""
        return self.counts[:, 1]

    @property
    def rounds(self) -> np.ndarray:
        """[C] int64."""
        return self.counts[:, 2]

    @staticmethod
    def starting(start: np.ndarray, late: int, random_states: Sequence[int]) -> Chains:
        """Chains that have not begun, with random numbers of their own: from ``start`` [U], or in turn of [K, U]."""
        chains, rows = len(random_states), np.atleast_2d(np.asarray(start, np.int32))
        device_of_unit = rows[np.arange(chains) % len(rows)]
        counts = np.zeros((chains, 4), np.int64)
        counts[:, :2] = NEVER
        counts[:, 3] = np.array(random_states, np.uint64).view(np.int64)
        late_ns = np.full((chains, late), NEVER, np.int64)
        return Chains(device_of_unit, device_of_unit.copy(), late_ns, counts)


class ChainSearch:
    """Advances chains of local search on one problem.

    search = ChainSearch([inputs], tables, capacity_bytes)
    chains, _ = search.advance(Chains.starting(start, 50, [1, 2]), [1000, 1000])
    """

    def __init__(
        self, orders: Sequence[SimulatorInputs], tables: MoveTables, capacity_bytes: np.ndarray
    ) -> None:
        """Prepares the arrays.

        Args:
          orders: at least one; a step's time is the sum over them, which differ in ``PER_ORDER``.
          tables: what moves are drawn from.
          capacity_bytes: [D] int64.
        """
        self._orders = tuple(orders)
        self._tables = tables
        self._capacity_bytes = capacity_bytes

    @functools.cached_property
    def _fixed(self) -> dict[str, tf.Tensor | int]:
        """Arguments common to all calls, made once: the op prepares anew for every other tensor."""
        graph = self._orders[0]
        values = {field.name: getattr(self._tables, field.name) for field in dataclasses.fields(self._tables)}
        with tf.init_scope(), tf.device("CPU:0"):
            tables = {
                name: tf.constant(value) if isinstance(value, np.ndarray) else value
                for name, value in values.items()
            }
            capacity_bytes = tf.constant(self._capacity_bytes, tf.int64)
            per_order = {
                name: tf.constant(np.stack([getattr(order, name) for order in self._orders]))
                for name in PER_ORDER
            }
        return {**graph.tensors, **tables, **per_order, "capacity_bytes": capacity_bytes}

    def advance(
        self, chains: Chains, rounds: Sequence[int] | np.ndarray, keep_edits: bool = False
    ) -> tuple[Chains, np.ndarray]:
        """Makes ``rounds`` [C] rounds more of each chain, each on a thread of TensorFlow's.

        Returns:
          The chains, and [C, R, F + 1] float32: features of each round's move, and the share of the step that it
          gained; zeros in rounds without a move. This is what the network is trained on; R is 0 unless edits are kept.

        Raises:
          tf.errors.InvalidArgumentError: an array has a wrong shape or value; the message names it.
        """
        number = len(chains.counts)
        with tf.device("CPU:0"):
            *after, edits = library().tf_placer_advance_local_search(
                rounds=tf.constant(np.array(rounds, np.int64)),
                device_of_unit=chains.device_of_unit,
                best_device_of_unit=chains.best_device_of_unit,
                late_ns=chains.late_ns,
                counts=chains.counts,
                priority_of_op=chains.priority_of_op.reshape(number, -1),
                best_priority_of_op=chains.best_priority_of_op.reshape(number, -1),
                keep_edits=keep_edits,
                **self._fixed,
            )
        return Chains(*(tensor.numpy() for tensor in after)), edits.numpy()
