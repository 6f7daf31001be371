"""The optimization problem: ops with costs, tensors with bytes, units to place."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from colocation.op_facts import topological_order
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, exact
from tf_placer.base.files import array_file_bytes, read_array_file, write_atomically
from tf_placer.cluster.cluster import Cluster, Device, Link, given_cluster
from tf_placer.costs.formulas import OpWork
from tf_placer.graph.program import SHARED, Splitting, backward_ops
from tf_placer.ops.simulator import SimulatorInputs
from tf_placer.problem.op_graph import OpGraph, TransferTimes, tensor_of_edge, tensor_table

SCHEMA_VERSION = 1
_KIND = "a tf_placer problem"
_REMEDY = "give what Problem.save wrote, or save the problem again"
_WORK = tuple(field.name for field in dataclasses.fields(OpWork))
_DESCRIPTIONS = (
    "name",
    "op_names",
    "op_types",
    "output_shapes",
    "fingerprint",
    "guessed_op_types",
    "estimated_sizes",
)

CLUSTER = "fused, "  # begins the op type of a cluster

# Left out of the digest, and where nothing is known of them.
_NOT_IN_DIGEST = ("name", "work", "splitting", "fusible_of_op")
_IN_DIGEST_IF_KNOWN = ("alias_of_tensor", "stage_of_op")
_Made = TypeVar("_Made")
_MADE: weakref.WeakKeyDictionary[Problem, dict[Any, Any]] = weakref.WeakKeyDictionary()


# Name -> type, shape and least entry of each array of a ``Problem``: N ops, U units, D devices, T tensors, E readers.
PROBLEM_ARRAYS: dict[str, tuple[type, str, int | None]] = {
    "unit_of_op": (np.int32, "N", 0),
    "compute_ns": (np.int64, "N D", 0),
    "tensor_producer": (np.int32, "T", 0),
    "tensor_bytes": (np.int64, "T", 0),
    "consumer_offset": (np.int32, "T+1", 0),
    "consumer_op": (np.int32, "E", 0),
    "resident_bytes": (np.int64, "U", 0),
    "allowed": (np.bool_, "U D", None),
    "priority": (np.int32, "N", None),
    "alias_of_tensor": (np.int32, "T", -1),
    "stage_of_op": (np.int32, "N", -1),
    "fusible_of_op": (np.bool_, "N", None),
}
# Arrays that may be left out, as empty ones, and the entry that stands for unknown; older files lack them.
UNKNOWN = {"alias_of_tensor": -1, "stage_of_op": -1, "fusible_of_op": False}
# Likewise of the arguments of ``Problem.from_arrays``, but for ``edges``: N ops, E edges.
_GIVEN_ARRAYS: dict[str, tuple[type, str, int | None]] = {
    "compute_ns": (np.int64, "N D", 0),
    "edge_bytes": (np.int64, "E", 0),
    "edge_tensor": (np.int64, "E", 0),
    "resident_bytes": (np.int64, "N", 0),
    "output_bytes": (np.int64, "N", 0),
    "allowed": (np.bool_, "N D", None),
    "unit_of_op": (np.int32, "N", 0),
}
# Of the simulator: a step of 13 days, and more bytes than there are.
_MOST_NS, _MOST_BYTES = 1 << 50, 1 << 62


def _check(
    arrays: Mapping[str, np.ndarray],
    table: Mapping[str, tuple[type, str, int | None]],
    sizes: Mapping[str, int],
) -> None:
    """Raises InputError where an array has not the shape or the entries of a table such as ``PROBLEM_ARRAYS``."""
    for name, (_, letters, least) in table.items():
        shape = tuple(sizes[letter] for letter in letters.split())
        if arrays[name].shape != shape:
            raise InputError(
                f"{name} has shape {arrays[name].shape}, expected {shape}: [{letters.replace(' ', ', ')}]"
            )
        if least is not None and arrays[name].size and arrays[name].min() < least:
            raise InputError(f"{name} has the entry {arrays[name].min()}; give at least {least}")
    homeless = ~arrays["allowed"].any(axis=1)
    if homeless.any():
        raise InputError(
            f"allowed gives unit {int(np.argmax(homeless))} no device at all; allow at least one"
        )


def checked_arrays(given: Mapping[str, Any], names: Sequence[str], cluster: Cluster) -> dict[str, np.ndarray]:
    """The array arguments of ``Problem.from_arrays``, checked and complete; ``allowed`` is [U, D]."""
    num_ops, edges = len(names), given["edges"]
    default = {"edge_tensor": np.arange(len(edges)), "unit_of_op": np.arange(num_ops)}
    arrays = {"edges": edges}
    for key, (dtype, _, _) in _GIVEN_ARRAYS.items():
        is_left_out = given[key] is None and key in default
        arrays[key] = exact(key, default[key] if is_left_out else given[key], dtype)
    _check(arrays, _GIVEN_ARRAYS, {"N": num_ops, "D": len(cluster.devices), "E": len(edges)})
    arguments.check_positions("edges", edges, num_ops)
    for key in ("compute_ns", "edge_bytes", "resident_bytes", "output_bytes"):
        most, noun = (_MOST_NS, "nanoseconds") if key == "compute_ns" else (_MOST_BYTES, "bytes")
        per_op = arrays[key].max(axis=1) if key == "compute_ns" else arrays[key]
        total = per_op.sum(dtype=np.float64)  # which no sum of int64 overflows
        if total >= most:
            raise InputError(
                f"{key} adds up to {total:.3g} {noun}, more than can be computed with; give less than {most:.3g}"
            )
    units, allowed = arrays["unit_of_op"], arrays["allowed"]
    present = np.unique(units)
    gaps = np.flatnonzero(present != np.arange(len(present)))
    if len(gaps):
        raise InputError(
            f"unit_of_op has an op in unit {present[-1]} and none in unit {gaps[0]}; number the units from 0 on, and "
            "leave none out"
        )
    arrays["allowed"] = np.ones((len(present), len(cluster.devices)), bool)  # where all ops of a unit may be
    np.logical_and.at(arrays["allowed"], units, allowed)
    has_device = arrays["allowed"].any(axis=1)
    if not has_device.all():
        unit = int(np.argmin(has_device))
        ops = np.flatnonzero(units == unit)
        # At most one op for each choice of devices.
        ops = ops[np.unique(allowed[ops], axis=0, return_index=True)[1]]
        disjoint = [(a, b) for a in ops for b in ops if not (allowed[a] & allowed[b]).any()]
        pair = disjoint[0] if disjoint else ops[allowed[ops].sum(axis=1).argsort(kind="stable")][:2]
        a, b = (names[int(op)] for op in pair)
        rest = "" if disjoint else " with the rest of it"
        raise InputError(
            f"unit_of_op puts ops {a!r} and {b!r} into unit {unit}, but allowed has no device of cluster "
            f"{cluster.name!r} for both{rest}; give them different units"
        )
    return arrays


def fields_of_arrays(
    given: Mapping[str, Any], cluster: Cluster, names: Sequence[str] | None
) -> dict[str, Any]:
    """Field of ``Problem`` -> value, for arguments as ``Problem.from_arrays`` documents them."""
    edges = exact("edges", given["edges"], np.int32)
    if edges.size and (edges.ndim != 2 or edges.shape[1] != 2):
        raise InputError(
            f"edges has shape {edges.shape}, expected (edges, 2): producer unit and consumer unit"
        )
    edges, costs = edges.reshape(-1, 2), exact("compute_ns", given["compute_ns"], np.int64)
    if costs.ndim != 2:
        raise InputError(f"compute_ns has shape {costs.shape}, expected [N, D]: a row for each op")
    num_ops, noun = len(costs), "unit" if given["unit_of_op"] is None else "op"
    if not num_ops:
        raise InputError("compute_ns has no rows; give at least one unit to place")
    names = [f"{noun}_{op}" for op in range(num_ops)] if names is None else names
    names = checked_names("names", names, num_ops)
    arrays = checked_arrays({**given, "edges": edges}, names, cluster)
    order = topological_order(num_ops, edges)
    if len(order) != num_ops:
        waiting = set(range(num_ops)).difference(order.tolist())  # on a cycle or behind one
        producer = {b: a for a, b in edges.tolist() if a in waiting and b in waiting}
        stuck = min(waiting)
        # Every waiting op waits for another one: as many steps back as there are ops end on a cycle.
        for _ in waiting:
            stuck = producer[stuck]
        raise InputError(
            f"edges form a cycle through {noun} {stuck} ({names[stuck]!r}); a step must be acyclic"
        )
    units, digest = arrays["unit_of_op"], hashlib.sha256()
    in_digest = ("compute_ns", "edges", "edge_bytes", "edge_tensor", "resident_bytes", "output_bytes")
    for key in in_digest if given["unit_of_op"] is None else (*in_digest, "unit_of_op"):
        digest.update(np.ascontiguousarray(arrays[key]).tobytes())
    resident_bytes = np.zeros(len(arrays["allowed"]), np.int64)
    np.add.at(resident_bytes, units, arrays["resident_bytes"])
    # Where an op makes more bytes than its edges carry, a tensor without readers has the rest.
    tensors = tensor_table(edges, arrays["edge_tensor"], arrays["edge_bytes"])
    rest_bytes = arrays["output_bytes"].copy()
    np.subtract.at(rest_bytes, tensors.producer, tensors.num_bytes)
    ops, number = np.flatnonzero(rest_bytes > 0), np.argsort(order)
    tensors = tensor_table(
        number[np.concatenate([edges, np.stack([ops, ops], axis=1)])],
        np.concatenate([arrays["edge_tensor"], np.full(len(ops), -1)]),
        np.concatenate([arrays["edge_bytes"], rest_bytes[ops]]),
    )
    return {
        "unit_of_op": units[order],
        "compute_ns": arrays["compute_ns"][order],
        "tensor_producer": tensors.producer,
        "tensor_bytes": tensors.num_bytes,
        "consumer_offset": tensors.consumer_offset,
        "consumer_op": tensors.consumer_op,
        "resident_bytes": resident_bytes,
        "allowed": arrays["allowed"],
        "priority": np.zeros(num_ops, np.int32),
        "op_names": tuple(names[op] for op in order),
        "op_types": ("",) * num_ops,
        "output_shapes": tuple(((int(arrays["output_bytes"][op]),),) for op in order),
        "fingerprint": digest.hexdigest(),
    }


def checked_problem_arrays(given: Mapping[str, object], num_devices: int) -> dict[str, np.ndarray]:
    """The arrays of ``PROBLEM_ARRAYS`` as they are documented, for so many devices."""
    arrays = {name: exact(name, given[name], dtype) for name, (dtype, _, _) in PROBLEM_ARRAYS.items()}
    counted = {"N": "unit_of_op", "U": "resident_bytes", "T": "tensor_bytes", "E": "consumer_op"}
    sizes = {letter: arrays[name].size for letter, name in counted.items()}
    sizes |= {"D": num_devices, "T+1": sizes["T"] + 1}
    if not sizes["N"]:
        raise InputError("unit_of_op has no entries; a problem needs at least one op")
    for name, unknown in UNKNOWN.items():
        dtype, letter, _ = PROBLEM_ARRAYS[name]
        if arrays[name].shape == (0,):
            arrays[name] = np.full(sizes[letter], unknown, dtype)
    _check(arrays, PROBLEM_ARRAYS, sizes)
    for name, letter in (("unit_of_op", "U"), ("tensor_producer", "N"), ("consumer_op", "N")):
        arguments.check_positions(name, arrays[name], sizes[letter])
    offset, producer = arrays["consumer_offset"], arrays["tensor_producer"]
    if offset[0] != 0 or offset[-1] != sizes["E"] or (np.diff(offset) < 0).any():
        raise InputError(
            f"consumer_offset must begin with 0, end with {sizes['E']} (the length of consumer_op) and never fall"
        )
    if (np.diff(producer) < 0).any():
        raise InputError("tensor_producer falls; give the tensors in the order of the ops that make them")
    tensor = tensor_of_edge(offset)
    if (arrays["consumer_op"] <= producer[tensor]).any():
        raise InputError(
            "consumer_op has an op that is not after its producer; give ops in topological order"
        )
    alias = arrays["alias_of_tensor"]
    sharing = np.flatnonzero(alias != -1)
    arguments.check_positions("alias_of_tensor", alias[sharing], sizes["T"])
    reads = tensor * sizes["N"] + arrays["consumer_op"]
    reuses = alias[sharing].astype(np.int64) * sizes["N"] + producer[sharing]
    is_known = np.isin(reuses, reads) | (alias[sharing] == sharing)
    wrong = sharing[~is_known | (arrays["tensor_bytes"][sharing] == 0)]
    if len(wrong):
        raise InputError(
            f"alias_of_tensor: tensor {wrong[0]} has the memory of tensor {alias[wrong[0]]}; give one that its op "
            "reads or the tensor itself, and -1 for a tensor of 0 bytes"
        )
    return arrays


def checked_names(argument: str, names: object, count: int) -> tuple[str, ...]:
    """``names`` as so many distinct texts."""
    texts = arguments.items_of(argument, names, str, "give one name for each")
    check_length(argument, texts, count)
    seen: set[str] = set()
    for name in texts:
        if name in seen:
            raise InputError(f"{argument} has {name!r} twice; a placement file needs distinct names")
        seen.add(name)
    return texts


def check_length(argument: str, entries: Sized, count: int) -> None:
    """Raises InputError unless there are ``count`` entries."""
    if len(entries) != count:
        raise InputError(f"{argument} has {len(entries)} entries, expected {count}: give one for each row")


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Everything a search needs, as arrays; no TensorFlow graph inside.

    N ops in topological order are simulated; the U units they belong to are placed. A
    tensor is one output of one op and crosses to a device at most once; a control
    dependency is a tensor of 0 bytes.
    """

    name: str  # what it is called in reports
    cluster: Cluster  # the D devices and their links
    unit_of_op: np.ndarray  # [N] int32, in [0, U)
    compute_ns: np.ndarray  # [N, D] int64, time of each op on each device; 0 = free
    tensor_producer: np.ndarray  # [T] int32, ascending
    tensor_bytes: np.ndarray  # [T] int64
    # [T + 1] int32; ``consumer_op[consumer_offset[t]:consumer_offset[t + 1]]`` are the distinct ops that wait
    # for tensor t, ascending, each after its producer
    consumer_offset: np.ndarray
    consumer_op: np.ndarray  # [E] int32
    resident_bytes: np.ndarray  # [U] int64, memory that stays on the unit's device (variables)
    allowed: np.ndarray  # [U, D] bool, devices that have kernels for every op of the unit
    priority: np.ndarray  # [N] int32, lower runs first among the ready ops of a device
    op_names: tuple[str, ...]  # [N] op names
    op_types: tuple[str, ...]  # [N] TensorFlow op types ("" when unknown)
    # [N] shapes of each op's outputs; a description for learned policies, which for a graph without shapes is
    # the bytes of each output as a vector's length
    output_shapes: tuple[tuple[tuple[int, ...], ...], ...]
    fingerprint: str  # hex digest of the graph this was built from
    # op type -> number of ops whose cost is a guess
    guessed_op_types: dict[str, int] = dataclasses.field(default_factory=dict)
    # rule -> number of tensors whose size is an estimate by it
    estimated_sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    # FLOPs, bytes and launches of each op, for who makes other costs of them; None where that is not known
    work: OpWork | None = None
    # [T] int32, the input of its op whose memory a tensor has where it is made (``aliases``), the tensor itself where
    # its memory is there for the whole step, -1 where it has memory of its own; copies that are received always have.
    # An empty array stands for -1 of every tensor.
    alias_of_tensor: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    # [N] int32, what an expert would keep together, in the order of the network (``Item.stages``); -1 where
    # that is not known. An empty array stands for that of every op.
    stage_of_op: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    splitting: Splitting | None = None  # how the batch of its program is in parts; None where it is whole
    # [N] bool, ops that XLA may compile (``why_not_fusible``); an empty array stands for none
    fusible_of_op: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))

    def __post_init__(self) -> None:
        arguments.text("name", self.name, "give the name that reports call it by")
        given_cluster("cluster", self.cluster)
        arrays = checked_problem_arrays(
            {name: getattr(self, name) for name in PROBLEM_ARRAYS}, self.num_devices
        )
        for name, array in arrays.items():
            object.__setattr__(self, name, array)
        object.__setattr__(self, "op_names", checked_names("op_names", self.op_names, self.num_ops))
        for name, entry_kind in (("op_types", str), ("output_shapes", tuple)):
            entries = arguments.items_of(name, getattr(self, name), entry_kind, "give one for each op")
            check_length(name, entries, self.num_ops)
        arguments.text("fingerprint", self.fingerprint, "give the digest of the graph")
        for name, kind, remedy in (
            ("guessed_op_types", dict, "give op type -> number of ops"),
            ("estimated_sizes", dict, "give rule -> number of tensors"),
            ("work", OpWork, "give an OpWork, or None"),
            ("splitting", Splitting, "give a Splitting, or None"),
        ):
            if getattr(self, name) is not None or kind is dict:
                arguments.instance_of(name, getattr(self, name), kind, remedy)
        if self.work is not None:
            check_length("work", self.work.flops, self.num_ops)

    def __repr__(self) -> str:
        size = f"{self.num_ops} ops in {self.num_units} units"
        return f"<Problem {self.name!r}: {size} on {self.num_devices} devices of {self.cluster.name!r}>"

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
        unit_of_op: np.ndarray | None = None,
    ) -> Problem:
        """A graph that was profiled elsewhere; no TensorFlow graph needed.

        Every op is a unit by itself, so that N is U, unless ``unit_of_op`` says which ops must share a device. All
        other arrays are of ops, with it or without: what stays in memory adds up over a unit's ops, and a unit is
        allowed where all of them are.

        Args:
          compute_ns: [N, D] int64.
          edges: [E, 2] int32, producer op and consumer op.
          edge_bytes: [E] int64.
          resident_bytes: [N] int64, memory that stays.
          output_bytes: [N] int64, memory of the op's output beyond its edges' tensors:
            what exceeds their sum is held while the op runs.
          allowed: [N, D] bool.
          cluster: D devices.
          names: [N] names for reports and plans.
          edge_tensor: [E] int32; edges of one producer with one id are one tensor and
            cross to a device once. Default: each edge is a tensor of its own.
          name: name for reports.
          unit_of_op: [N] int32, colocation classes from 0 to U - 1; edges may lead in a cycle from unit to unit,
            but not from op to op.

        Raises:
          InputError: no op, shapes disagree, a number is negative, sums are more than any step takes, the graph
            has a cycle, ``unit_of_op`` leaves a number out, or no device is allowed for all ops of a unit.
        """
        given_cluster("cluster", cluster)
        arrays = {
            "compute_ns": compute_ns,
            "edges": edges,
            "edge_bytes": edge_bytes,
            "edge_tensor": edge_tensor,
            "resident_bytes": resident_bytes,
            "output_bytes": output_bytes,
            "allowed": allowed,
            "unit_of_op": unit_of_op,
        }
        return Problem(name=name, cluster=cluster, **fields_of_arrays(arrays, cluster, names))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the problem, its cluster included, to one file, whole or not at all."""
        file = arguments.file_to_write("path", path)
        arrays = {name: getattr(self, name) for name in PROBLEM_ARRAYS}
        for name, unknown in UNKNOWN.items():
            if (arrays[name] == unknown).all():
                del arrays[name]
        header = {name: getattr(self, name) for name in _DESCRIPTIONS}
        header["splitting"] = None if self.splitting is None else dataclasses.asdict(self.splitting)
        header |= {"cluster": dataclasses.asdict(self.cluster), "has_work": self.work is not None}
        if self.work is not None:
            arrays |= {f"work_{name}": getattr(self.work, name) for name in _WORK}
        write_atomically(file, array_file_bytes(_KIND, SCHEMA_VERSION, header, arrays))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Problem:
        """Reads what ``save`` wrote: equal in every field, and so in ``digest``.

        Raises:
          InputError: the file is missing, damaged, of something else, or of another version; or what it holds is no
            problem, by the checks of this class.
        """
        file = arguments.path("path", path, "the file of a problem")
        header, arrays = read_array_file(file, _KIND, SCHEMA_VERSION, _REMEDY)
        try:
            fields: dict[str, Any] = {name: header[name] for name in _DESCRIPTIONS}
            fields |= {name: arrays[name] for name in PROBLEM_ARRAYS if name in arrays or name not in UNKNOWN}
            fields["output_shapes"] = tuple(tuple(map(tuple, shapes)) for shapes in header["output_shapes"])
            for name in ("op_names", "op_types"):
                fields[name] = tuple(header[name])
            cluster = header["cluster"]
            fields["cluster"] = Cluster(
                name=cluster["name"],
                devices=tuple(Device(**device) for device in cluster["devices"]),
                links=tuple(Link(**link) for link in cluster["links"]),
                kind=cluster["kind"],
            )
            if header.get("splitting"):  # not in older files
                fields["splitting"] = Splitting(**header["splitting"])
            if header["has_work"]:
                names = [name for name in _WORK if f"work_{name}" in arrays or name != "work_class"]
                fields["work"] = OpWork(**{name: arrays[f"work_{name}"] for name in names})
            return Problem(**fields)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{file} lacks a part of a problem ({error}); {_REMEDY}") from error

    def digest(self) -> str:
        """Hex digest of everything that decides a search: graph, units, costs, tensors and cluster.

        Left out are the name and ``work``: times are in ``compute_ns``, so no result depends on them, and
        checkpoints of searches from before there was ``work`` go on. So do those of problems without stages or shared
        memory. ``fusible_of_op`` follows from the graph.
        """
        digest = hashlib.sha256()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _NOT_IN_DIGEST or (field.name in _IN_DIGEST_IF_KNOWN and (value < 0).all()):
                continue
            if isinstance(value, np.ndarray):
                content = f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
            else:
                content = repr(value.fingerprint() if isinstance(value, Cluster) else value).encode()
            digest.update(f"{field.name} {len(content)} ".encode() + content)
        return digest.hexdigest()[:16]

    @functools.cached_property
    def op_graph(self) -> OpGraph:
        """The graph between ops, with levels and transfer times."""
        return OpGraph(
            op_ns=self.fastest_ns(),
            tensor_producer=self.tensor_producer,
            tensor_bytes=self.tensor_bytes,
            consumer_offset=self.consumer_offset,
            consumer=self.consumer_op,
            transfer=TransferTimes.of(self.cluster),
        )

    def part_of_op(self) -> np.ndarray:
        """[N] int32: the part that an op is a copy for; ``SHARED`` for no copy, as in a problem of a whole batch."""
        if self.splitting is None:
            return np.full(self.num_ops, SHARED, np.int32)
        return np.array([self.splitting.part_of(name) for name in self.op_names], np.int32)

    def backward_ops(self) -> np.ndarray:
        """[N] bool: ops of gradients, and all that waits for one (``tf_placer.graph.program.backward_ops``)."""
        return backward_ops(self.op_names, self.op_graph.edges)

    def own_bytes(self) -> np.ndarray:
        """[T] int64, memory of each live tensor at home: 0 for an alias, and for what stays."""
        return np.where(self.alias_of_tensor < 0, self.tensor_bytes, 0)

    def staying_bytes(self) -> np.ndarray:
        """[U] int64, bytes of each unit's tensors that are there for the whole step: inputs of the program."""
        staying = np.flatnonzero(self.alias_of_tensor == np.arange(len(self.tensor_bytes)))
        num_bytes = np.zeros(self.num_units, np.int64)
        np.add.at(num_bytes, self.unit_of_op[self.tensor_producer[staying]], self.tensor_bytes[staying])
        return num_bytes

    def held_bytes(self) -> np.ndarray:
        """[U] int64: what each unit's outputs hold at the moment when a step on one device holds most.

        Beside ``resident_bytes`` an estimate of a unit's share of the peak: the ops of the step run one at a time in
        their order, and the outputs that are alive at its fullest moment are counted, such as activations that wait for
        the backward pass. Copies that are sent, and moments that are fuller elsewhere, are left out: only the
        simulator knows those.
        """
        held = self.staying_bytes()
        if not len(self.tensor_producer):
            return held
        born = self.tensor_producer.astype(np.int64)
        dies = born.copy()
        read = np.diff(self.consumer_offset) > 0
        dies[read] = self.consumer_op[self.consumer_offset[1:][read] - 1]
        for sharing in np.flatnonzero(self.alias_of_tensor >= 0)[::-1]:  # what it shares lives as long
            shared = self.alias_of_tensor[sharing]
            dies[shared] = max(dies[shared], dies[sharing])
        own_bytes = self.own_bytes()
        change = np.zeros(self.num_ops + 1, np.int64)
        np.add.at(change, born, own_bytes)
        np.subtract.at(change, dies + 1, own_bytes)
        fullest = int(np.cumsum(change)[:-1].argmax())
        alive = (born <= fullest) & (fullest <= dies)
        np.add.at(held, self.unit_of_op[born[alive]], own_bytes[alive])
        return held

    def fastest_ns(self) -> np.ndarray:
        """[N] int64, time of each op on its fastest allowed device."""
        allowed = self.allowed[self.unit_of_op]
        return np.where(allowed, self.compute_ns, np.iinfo(np.int64).max).min(axis=1)

    def work_ns(self) -> np.ndarray:
        """[U] int64, time of each unit's ops on the fastest device."""
        work_ns = np.zeros(self.num_units, np.int64)
        np.add.at(work_ns, self.unit_of_op, self.fastest_ns())
        return work_ns

    def everything_on(self, device: int) -> np.ndarray:
        """[U] int32: every unit on ``device``; one without a kernel there on its first legal device."""
        device = arguments.whole_number("device", device, 0, self.num_devices - 1)
        return self.legalized(np.full(self.num_units, device))

    def legalized(self, rows: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
        """[..., U] int32: every unit on its device in ``rows`` or, if that is illegal, on its first legal device.

        ``order`` [D] has all devices in the order in which a unit takes its first legal one; by position without.
        """
        devices_of_rows = exact("rows", rows, np.int32)
        if not devices_of_rows.ndim or devices_of_rows.shape[-1] != self.num_units:
            raise InputError(f"rows has shape {devices_of_rows.shape}, expected [..., {self.num_units}]")
        arguments.check_positions("rows", devices_of_rows, self.num_devices)
        if order is None:
            first_legal = self.allowed.argmax(axis=1)
        else:
            devices = exact("order", order, np.int32)
            if sorted(devices.ravel().tolist()) != list(range(self.num_devices)) or devices.ndim != 1:
                raise InputError(
                    f"order is {arguments.shown(order)}; give every device from 0 to {self.num_devices - 1} once"
                )
            first_legal = devices[self.allowed[:, devices].argmax(axis=1)]
        return np.where(
            self.allowed[np.arange(self.num_units), devices_of_rows], devices_of_rows, first_legal
        ).astype(np.int32)

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
        """The name of the unit's first op."""
        unit = arguments.whole_number("unit", unit, 0, self.num_units - 1)
        return self.op_names[int(np.argmax(self.unit_of_op == unit))]


def made_once(make: Callable[..., _Made], problem: Problem, *given: Hashable) -> _Made:
    """``make(problem, *given)``, an array read-only, kept as long as the problem is.

    Searches of one problem, such as those that race under several orders, then make plans, groups and bounds once.

    ``make`` depends on its arguments alone, and its result holds no reference to the problem.
    """
    results = _MADE.setdefault(problem, {})
    key = make, given
    if key not in results:
        results[key] = make(problem, *given)
        if isinstance(results[key], np.ndarray):
            results[key].setflags(write=False)
    result: _Made = results[key]
    return result


def simulator_inputs(problem: Problem) -> SimulatorInputs:
    """What the simulator's op takes of a problem and its cluster."""
    names = [field.name for field in dataclasses.fields(SimulatorInputs)]
    of_problem = {name: getattr(problem, name) for name in names if name in PROBLEM_ARRAYS}
    of_cluster = {name: getattr(problem.cluster, name)() for name in names if name not in PROBLEM_ARRAYS}
    return SimulatorInputs(**of_problem, **of_cluster)
