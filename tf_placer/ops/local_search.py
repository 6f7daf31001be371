"""Local search inside the simulator, with the C++ op."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.ops.library import library
from tf_placer.ops.simulator import SimulatorInputs

# What the orders of a search may differ in; all else is one graph on one cluster.
PER_ORDER = ("priority", "newest_first", "compute_ns", "dispatch_ns", "link_bytes_per_s", "link_tensor_ns")

NEVER = 2**63 - 1
"""Time of a placement that does not fit."""


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
