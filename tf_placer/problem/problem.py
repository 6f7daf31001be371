"""The optimization problem: ops with costs, tensors with bytes, units to place."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from tf_placer import arguments
from tf_placer.cluster.cluster import Cluster, given_cluster
from tf_placer.errors import InputError
from tf_placer.exact import exact
from tf_placer.problem.check_arrays import (
    PROBLEM_ARRAYS,
    check_length,
    checked_arrays,
    checked_names,
    checked_problem_arrays,
)
from tf_placer.problem.tensors import tensor_table
from tf_placer.problem.topological import topological_order


@dataclasses.dataclass(frozen=True, eq=False)
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
        are the distinct ops that wait for tensor t, ascending, each after its producer.
      consumer_op: [E] int32.
      resident_bytes: [U] int64, memory that stays on the unit's device (variables).
      allowed: [U, D] bool, devices that have kernels for every op of the unit.
      priority: [N] int32, lower runs first among the ready ops of a device.
      op_names: [N] op names.
      op_types: [N] TensorFlow op types ("" when unknown).
      output_shapes: [N] shapes of each op's outputs; a description for learned policies, which
        for a graph without shapes is the bytes of each output as a vector's length.
      fingerprint: hex digest of the graph this was built from.
      guessed_op_types: op type -> number of ops whose cost is a guess.
      estimated_sizes: rule -> number of tensors whose size is an estimate by it.

    Raises:
      InputError: no op, or a field that is not as stated here.
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
    output_shapes: tuple[tuple[tuple[int, ...], ...], ...]
    fingerprint: str
    guessed_op_types: dict[str, int] = dataclasses.field(default_factory=dict)
    estimated_sizes: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments.text("name", self.name, "give the name that reports call it by")
        given_cluster("cluster", self.cluster)
        arrays = {name: getattr(self, name) for name in PROBLEM_ARRAYS}
        for name, array in checked_problem_arrays(arrays, self.num_devices).items():
            object.__setattr__(self, name, array)
        object.__setattr__(self, "op_names", checked_names("op_names", self.op_names, self.num_ops))
        for name in ("op_types", "output_shapes"):
            kind = str if name == "op_types" else tuple
            entries = arguments.items_of(name, getattr(self, name), kind, "give one for each op")
            check_length(name, entries, self.num_ops)
        arguments.text("fingerprint", self.fingerprint, "give the digest of the graph")
        arguments.instance_of(
            "guessed_op_types", self.guessed_op_types, dict, "give op type -> number of ops"
        )
        arguments.instance_of("estimated_sizes", self.estimated_sizes, dict, "give rule -> number of tensors")

    @property
    def num_ops(self) -> int:
        return len(self.unit_of_op)

    @property
    def num_units(self) -> int:
        return len(self.resident_bytes)

    @property
    def num_devices(self) -> int:
        return len(self.cluster.devices)

    @staticmethod
    def from_arrays(
        compute_ns: np.ndarray,
        edges: np.ndarray,
        edge_bytes: np.ndarray,
        resident_bytes: np.ndarray,
        output_bytes: np.ndarray,
        allowed: np.ndarray,
        cluster: Cluster,
        names: Sequence[str] | None = None,
        edge_tensor: np.ndarray | None = None,
        name: str = "arrays",
    ) -> Problem:
        """A graph that was profiled elsewhere: one op per unit, no TensorFlow graph needed.

        Args:
          compute_ns: [U, D] int64.
          edges: [E, 2] int32, producer unit and consumer unit.
          edge_bytes: [E] int64.
          resident_bytes: [U] int64, memory that stays.
          output_bytes: [U] int64, memory of the unit's output beyond its edges' tensors:
            what exceeds their sum is held while the unit runs.
          allowed: [U, D] bool.
          cluster: D devices.
          names: [U] names for reports.
          edge_tensor: [E] int32; edges of one producer with one id are one tensor and
            cross to a device once. Default: each edge is a tensor of its own.
          name: name for reports.

        Raises:
          InputError: no unit, shapes disagree, a number is negative, sums are more than any step takes, or the graph
            has a cycle.
        """
        given_cluster("cluster", cluster)
        compute_ns, edges, edge_bytes, edge_tensor, resident_bytes, output_bytes, allowed = checked_arrays(
            compute_ns, edges, edge_bytes, edge_tensor, resident_bytes, output_bytes, allowed, cluster
        )
        num_units = len(compute_ns)
        names = [f"unit_{u}" for u in range(num_units)] if names is None else names
        names = checked_names("names", names, num_units)
        order = topological_order(num_units, edges)
        if len(order) != num_units:
            stuck = _unit_on_cycle(np.setdiff1d(np.arange(num_units), order), edges)
            raise InputError(
                f"edges form a cycle through unit {stuck} ({names[stuck]!r}); a step must be acyclic"
            )
        op_of_unit = np.argsort(order)
        scratch = _outputs_nobody_reads(num_units, edges, edge_tensor, edge_bytes, output_bytes)
        table = tensor_table(
            np.concatenate([op_of_unit[edges], op_of_unit[scratch[:, :1]].repeat(2, axis=1)]),
            np.concatenate([edge_tensor, np.full(len(scratch), -1)]),
            np.concatenate([edge_bytes, scratch[:, 1]]),
        ).without_self_consumers()
        name = arguments.text("name", name, "give the name that reports call it by")
        digest = hashlib.sha256()
        for array in (compute_ns, edges, edge_bytes, edge_tensor, resident_bytes, output_bytes):
            digest.update(np.ascontiguousarray(array).tobytes())
        return Problem(
            name=name,
            cluster=cluster,
            unit_of_op=order.astype(np.int32),
            compute_ns=compute_ns[order],
            tensor_producer=table.producer,
            tensor_bytes=table.num_bytes,
            consumer_offset=table.consumer_offset,
            consumer_op=table.consumer_op,
            resident_bytes=resident_bytes,
            allowed=allowed,
            priority=np.zeros(num_units, np.int32),
            op_names=tuple(names[u] for u in order),
            op_types=("",) * num_units,
            output_shapes=tuple(((int(output_bytes[u]),),) for u in order),
            fingerprint=digest.hexdigest(),
        )

    def digest(self) -> str:
        """Hex digest of everything that a search sees: graph, units, costs, tensors and cluster, not the name."""
        digest = hashlib.sha256()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                content = f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
            else:
                content = repr(value.fingerprint() if isinstance(value, Cluster) else value).encode()
            if field.name != "name":
                digest.update(f"{field.name} {len(content)} ".encode() + content)
        return digest.hexdigest()[:16]

    def fastest_ns(self) -> np.ndarray:
        """[N] int64, time of each op on the fastest device that it may run on."""
        allowed = self.allowed[self.unit_of_op]
        return np.where(allowed, self.compute_ns, np.iinfo(np.int64).max).min(axis=1)

    def work_ns(self) -> np.ndarray:
        """[U] int64, time of each unit's ops on the fastest device."""
        work_ns = np.zeros(self.num_units, np.int64)
        np.add.at(work_ns, self.unit_of_op, self.fastest_ns())
        return work_ns

    def everything_on(self, device: int) -> np.ndarray:
        """[U] int32: every unit on ``device``; one without a kernel there on its first legal device.

        Raises:
          InputError: the cluster has no such device.
        """
        device = arguments.whole_number("device", device, 0, self.num_devices - 1)
        first_legal = self.allowed.argmax(axis=1)
        return np.where(self.allowed[:, device], device, first_legal).astype(np.int32)

    def check_legal(self, device_of_unit: np.ndarray) -> None:
        """Raises InputError unless ``device_of_unit`` [U] is a legal placement of this problem."""
        device_of_unit = exact("device_of_unit", device_of_unit, np.int32)
        if device_of_unit.shape != (self.num_units,):
            raise InputError(
                f"device_of_unit has shape {device_of_unit.shape}, expected ({self.num_units},): one device per unit"
            )
        outside = (device_of_unit < 0) | (device_of_unit >= self.num_devices)
        if outside.any():
            unit = int(np.argmax(outside))
            raise InputError(
                f"device_of_unit: unit {unit} ({self.name_of_unit(unit)!r}) is on device {int(device_of_unit[unit])}, "
                f"but the cluster {self.cluster.name!r} has devices 0 to {self.num_devices - 1}; give one of them"
            )
        illegal = ~self.allowed[np.arange(self.num_units), device_of_unit]
        if illegal.any():
            unit = int(np.argmax(illegal))
            device = self.cluster.devices[int(device_of_unit[unit])]
            legal = [d.name for d, ok in zip(self.cluster.devices, self.allowed[unit], strict=True) if ok]
            raise InputError(
                f"device_of_unit: the unit of op {self.name_of_unit(unit)!r} has no kernel on {device.name}; "
                f"it can run on {', '.join(legal)}"
            )

    def name_of_unit(self, unit: int) -> str:
        """The name of the unit's first op.

        Raises:
          InputError: there is no such unit.
        """
        unit = arguments.whole_number("unit", unit, 0, self.num_units - 1)
        return self.op_names[int(np.argmax(self.unit_of_op == unit))]


def placement_rows(device_of_unit: object, problem: Problem) -> np.ndarray:
    """``device_of_unit`` as [B, U] int32, legal or not.

    Raises:
      InputError: wrong type or shape.
    """
    rows = exact("device_of_unit", device_of_unit, np.int32)
    if rows.ndim != 2 or rows.shape[1] != problem.num_units:
        raise InputError(f"device_of_unit has shape {rows.shape}, expected [B, {problem.num_units}]")
    return rows


def _unit_on_cycle(stuck: np.ndarray, edges: np.ndarray) -> int:
    """One of the ``stuck`` units (on a cycle or behind one) that is itself on a cycle."""
    inside = edges[np.isin(edges[:, 0], stuck) & np.isin(edges[:, 1], stuck)]
    producer = dict(zip(inside[:, 1].tolist(), inside[:, 0].tolist(), strict=True))
    unit = int(stuck[0])
    # Every stuck unit waits for a stuck one: as many steps back as there are units end on a cycle.
    for _ in stuck:
        unit = producer[unit]
    return unit


def _outputs_nobody_reads(num_units, edges, edge_tensor, edge_bytes, output_bytes):
    """[S, 2] (unit, bytes): what a unit holds while it runs, beyond the tensors that others read."""
    table = tensor_table(edges, edge_tensor, edge_bytes)
    read_bytes = np.zeros(num_units, np.int64)
    np.add.at(read_bytes, table.producer, table.num_bytes)
    excess = np.maximum(output_bytes - read_bytes, 0)
    units = np.flatnonzero(excess)
    return np.stack([units, excess[units]], axis=1)
