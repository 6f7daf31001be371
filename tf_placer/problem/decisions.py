"""Decisions of a batch of plans: devices and, if decided, an order of execution and fusion clusters."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, exact
from tf_placer.problem.problem import Problem

NO_CLUSTER = -1
_PROBLEM = "give what tf_placer.build_problem returns"
# Values for an op about which a plan decides nothing.
UNDECIDED = {"priority_of_op": 0, "cluster_of_op": NO_CLUSTER}
_FIELDS = ("device_of_unit", *UNDECIDED)


@dataclasses.dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions of B plans of one problem; their legality is checked by the problem.

    Arrays are kept as read-only copies. Tensors stay tensors, so that only the rows that are wanted are copied out.
    """

    device_of_unit: np.ndarray | tf.Tensor  # [B, U] int32, positions in ``problem.cluster.devices``
    # [B, N] int32, lower runs first among the ready ops of a device; None where no order is decided. An op of
    # equal priority waits as it would without; so 0 for every op of a plan decides nothing.
    priority_of_op: np.ndarray | tf.Tensor | None = None
    # [B, N] int32, ops of one number are to be fused, -1 is with none; None where none is decided
    cluster_of_op: np.ndarray | tf.Tensor | None = None

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if value is None and name != "device_of_unit":
                continue
            if tf.is_tensor(value) and value.dtype != tf.int32 and tf.is_symbolic_tensor(value):
                raise InputError(f"{name} is a tensor of {value.dtype.name}; cast it to int32")
            is_kept = isinstance(value, tf.Tensor) and value.dtype == tf.int32
            rows: Any = value if is_kept else exact(name, value, np.int32)
            if (rows.shape.rank if is_kept else rows.ndim) != 2:
                raise InputError(f"{name} has shape {rows.shape}, expected [B, ...]: one row for each plan")
            if not is_kept:
                rows.setflags(write=False)  # ``exact`` has made a copy
            object.__setattr__(self, name, rows)
        shapes = {name: tuple(value.shape) for name in _FIELDS if (value := getattr(self, name)) is not None}
        plans = {shape[0] for shape in shapes.values()} - {None}
        ops = {shape[1] for name, shape in shapes.items() if name in UNDECIDED} - {None}
        if len(plans) > 1 or len(ops) > 1:
            listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise InputError(
                f"{listed} are not of the same plans; give as many rows of each, and one entry for each op"
            )
        clusters = self.cluster_of_op
        if isinstance(clusters, np.ndarray) and clusters.size and clusters.min() < NO_CLUSTER:
            raise InputError(
                f"cluster_of_op has the entry {clusters.min()}; give {NO_CLUSTER} for no cluster, or a number from 0"
            )

    def __repr__(self) -> str:
        arrays = {name: getattr(self, name) for name in _FIELDS}
        decided = ", ".join(
            f"{name} {tuple(value.shape)}" for name, value in arrays.items() if value is not None
        )
        return f"<Decisions of {len(self)} plans: {decided}>"

    def __len__(self) -> int:
        return int(self.device_of_unit.shape[0])

    @property
    def plain(self) -> np.ndarray | tf.Tensor | Decisions:
        """[B, U] where only devices are decided, else the decisions: for evaluators of devices alone."""
        is_plain = self.priority_of_op is None and self.cluster_of_op is None
        return self.device_of_unit if is_plain else self

    def row(self, index: int) -> Decisions:
        """One plan as arrays of one row; undecided fields are None."""
        index = arguments.whole_number("index", index, 0, len(self) - 1)
        values = {}
        for name in _FIELDS:
            value = getattr(self, name)
            row = None if value is None else np.asarray(value[index : index + 1])
            is_decided = row is not None and not (name in UNDECIDED and (row == UNDECIDED[name]).all())
            values[name] = row if is_decided else None
        return Decisions(**values)

    def digest(self, index: int, problem: Problem) -> str:
        """Hex digest of all that one plan decides; equal for plans that decide the same.

        Of the devices of ops, not of units: how ops are joined to units may change, what runs does not. A plan that
        decides devices alone has the digest that it had before anything else could be decided: journals hold it.
        """
        plan = decisions_of(self.row(index), arguments.instance_of("problem", problem, Problem, _PROBLEM))
        digest = hashlib.sha256(plan.device_of_unit[0][problem.unit_of_op].astype("<i4").tobytes())
        for name in UNDECIDED:
            value = getattr(plan, name)
            if value is not None:
                digest.update(name.encode() + value.astype("<i4").tobytes())
        return digest.hexdigest()[:32]

    @staticmethod
    def joined(parts: Sequence[Decisions]) -> Decisions:
        """The plans of several, in order, as arrays."""
        remedy = "give at least one Decisions, all of one problem"
        decided = arguments.items_of("parts", parts, Decisions, remedy)
        if not decided:
            raise InputError(f"parts is empty; {remedy}")
        values: dict[str, Any] = {}
        for name in _FIELDS:
            rows = [getattr(part, name) for part in decided]
            width = next((value.shape[1] for value in rows if value is not None), None)
            if width is None:
                continue
            for i, part in enumerate(
                decided
            ):  # what one part does not decide is filled in where another does
                if rows[i] is None:
                    rows[i] = np.full((len(part), width), UNDECIDED[name], np.int32)
            try:
                values[name] = np.concatenate([np.asarray(value) for value in rows])
            except ValueError as error:
                raise InputError(f"parts are of different widths ({error}); {remedy}") from error
        return Decisions(**values)


def ranked(*keys: np.ndarray) -> np.ndarray:
    """[N] int32 priorities that put the least first: by the first key [N], of equal ones by the second, and so on."""
    order = np.lexsort(keys[::-1])
    rises = np.zeros(len(order), bool)
    for key in keys:
        rises[1:] |= key[order][1:] != key[order][:-1]
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.cumsum(rises)
    return ranks


def decisions_of(value: object, problem: Problem) -> Decisions:
    """Decisions from plans of a problem: an array [B, U], a list of rows, a tensor, or ``Decisions``."""
    if not isinstance(value, Decisions):
        value = Decisions(value)
    for name in _FIELDS:
        rows = getattr(value, name)
        letter, width = ("U", problem.num_units) if name == "device_of_unit" else ("N", problem.num_ops)
        if rows is not None and rows.shape[1] not in (width, None):
            raise InputError(
                f"{name} has shape {tuple(rows.shape)}, expected [B, {width}]: {letter} of {problem.name!r}"
            )
    return value
