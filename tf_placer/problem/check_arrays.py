"""Checks of a problem's arrays: shapes, signs, positions, sums; edges to tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sized

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, exact
from tf_placer.cluster.cluster import Cluster

# Edges to tensors: the compressed rows that the simulator reads.


@dataclasses.dataclass(frozen=True, eq=False)
class TensorTable:
    """T tensors by ascending producer, and the consumers of each (see ``Problem``)."""

    producer: np.ndarray  # [T] int32
    output: np.ndarray  # [T] the id of each among its producer's
    num_bytes: np.ndarray  # [T] int64
    consumer_offset: np.ndarray  # [T + 1] int32
    consumer_op: np.ndarray  # [E'] int32

    def without_self_consumers(self) -> TensorTable:
        """Drops edges of an op to itself: their tensors stay, with nobody waiting for them."""
        tensor = tensor_of_edge(self.consumer_offset)
        is_other = self.consumer_op != self.producer[tensor]
        counts = np.bincount(tensor[is_other], minlength=len(self.producer))
        return dataclasses.replace(
            self,
            consumer_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            consumer_op=self.consumer_op[is_other],
        )


def tensor_of_edge(consumer_offset: np.ndarray) -> np.ndarray:
    """[E] int64: the tensor of each entry of ``consumer_op``, from where each tensor's entries begin [T + 1]."""
    return np.repeat(np.arange(len(consumer_offset) - 1), np.diff(consumer_offset))


def tensor_table(edges: np.ndarray, tensor_ids: np.ndarray, bytes_of_edge: np.ndarray) -> TensorTable:
    """Groups edges of one tensor; a consumer reading a tensor twice waits once.

    Args:
      edges: [E, 2] producer op, consumer op.
      tensor_ids: [E] ids; edges of one producer with one id are one tensor.
      bytes_of_edge: [E] int64; a tensor has the bytes of its largest edge.
    """
    keys = np.stack([edges[:, 0], tensor_ids, edges[:, 1]], axis=1)
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    keys, num_bytes = keys[order], bytes_of_edge[order]
    first_of_tensor = np.ones(len(keys), bool)
    first_of_tensor[1:] = (keys[1:, :2] != keys[:-1, :2]).any(axis=1)
    first_of_consumer = first_of_tensor.copy()
    first_of_consumer[1:] |= keys[1:, 2] != keys[:-1, 2]
    starts = np.flatnonzero(first_of_tensor)
    tensor = np.cumsum(first_of_tensor) - 1
    consumers = np.flatnonzero(first_of_consumer)
    counts = np.bincount(tensor[consumers], minlength=len(starts))
    largest = np.maximum.reduceat(num_bytes, starts) if len(starts) else np.zeros(0, np.int64)
    return TensorTable(
        producer=keys[starts, 0].astype(np.int32),
        output=keys[starts, 1],
        num_bytes=largest.astype(np.int64),
        consumer_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        consumer_op=keys[consumers, 2].astype(np.int32),
    )


# Name -> type and shape of each array of a ``Problem``: N ops, U units, D devices, T tensors, E readers of tensors.
PROBLEM_ARRAYS: dict[str, tuple[type, str]] = {
    "unit_of_op": (np.int32, "N"),
    "compute_ns": (np.int64, "ND"),
    "tensor_producer": (np.int32, "T"),
    "tensor_bytes": (np.int64, "T"),
    "consumer_offset": (np.int32, "T+1"),
    "consumer_op": (np.int32, "E"),
    "resident_bytes": (np.int64, "U"),
    "allowed": (np.bool_, "UD"),
    "priority": (np.int32, "N"),
}
# Of the simulator: a step of 13 days, and more bytes than there are.
_MOST_NS = 1 << 50
_MOST_BYTES = 1 << 62


def checked_arrays(arrays: Mapping[str, object], cluster: Cluster) -> dict[str, np.ndarray]:
    """The array arguments of ``Problem.from_arrays``, checked.

    Raises:
      InputError: one is not; names it.
    """
    devices = len(cluster.devices)
    compute_ns = exact("compute_ns", arrays["compute_ns"], np.int64)
    if compute_ns.ndim != 2 or compute_ns.shape[1] != devices:
        raise InputError(
            f"compute_ns has shape {compute_ns.shape}, expected (units, {devices}): "
            f"a column per device of cluster {cluster.name!r}"
        )
    num_units = len(compute_ns)
    if not num_units:
        raise InputError("compute_ns has no rows; give at least one unit to place")
    edges = _pairs("edges", arrays["edges"])
    complete = {**arrays, "edge_tensor": np.arange(len(edges))} if arrays["edge_tensor"] is None else arrays
    checked = {"compute_ns": compute_ns, "edges": edges}
    shapes = {
        **dict.fromkeys(("edge_bytes", "edge_tensor"), (len(edges),)),
        **dict.fromkeys(("resident_bytes", "output_bytes"), (num_units,)),
        "allowed": compute_ns.shape,
    }
    for argument, shape in shapes.items():
        checked[argument] = exact(argument, complete[argument], bool if argument == "allowed" else np.int64)
        if checked[argument].shape != shape:
            raise InputError(f"{argument} has shape {checked[argument].shape}, expected {shape}")
    for argument in ("compute_ns", *shapes):
        check_least("a cost, a size or an id", argument, checked[argument])
    if len(edges) and (edges.min() < 0 or edges.max() >= num_units):
        raise InputError(
            f"edges name unit {edges.max()} or below 0; rows of compute_ns are 0 to {num_units - 1}"
        )
    _check_homes(checked["allowed"])
    _check_sum("compute_ns", compute_ns.max(axis=1), _MOST_NS, "nanoseconds")
    for argument in ("edge_bytes", "resident_bytes", "output_bytes"):
        _check_sum(argument, checked[argument], _MOST_BYTES, "bytes")
    return checked


def checked_units(
    unit_of_op: object, allowed: np.ndarray, names: tuple[str, ...], cluster: Cluster
) -> np.ndarray:
    """[N] int32, the argument of ``Problem.from_arrays``: each unit has an op, and a device for all its ops.

    Raises:
      InputError: it is not so; names ops that cannot be together.
    """
    units = exact("unit_of_op", unit_of_op, np.int32)
    if units.shape != (len(names),):
        raise InputError(f"unit_of_op has shape {units.shape}, expected ({len(names)},): a unit for each op")
    if units.min() < 0:
        raise InputError(f"unit_of_op has a negative entry ({units.min()}); number the units from 0 on")
    highest = int(units.max())
    present = np.bincount(units[units < len(units)], minlength=len(units)) > 0
    missing = np.flatnonzero(~present[: highest + 1])
    if highest >= len(units) or len(missing):
        raise InputError(
            f"unit_of_op has an op in unit {highest} and none in unit {missing[0]}; number the units from 0 on, and "
            "leave none out"
        )
    common = np.ones((highest + 1, allowed.shape[1]), bool)
    np.logical_and.at(common, units, allowed)
    homeless = np.flatnonzero(~common.any(axis=1))
    if len(homeless):
        raise InputError(_parted(int(homeless[0]), units, allowed, names, cluster))
    return units


def _parted(
    unit: int, units: np.ndarray, allowed: np.ndarray, names: tuple[str, ...], cluster: Cluster
) -> str:
    """Ops of a unit that have no device in common: two that have none by themselves, if there are such."""
    ops = np.flatnonzero(units == unit)
    ops = ops[np.unique(allowed[ops], axis=0, return_index=True)[1]]  # as few as there are choices of devices
    disjoint = [(a, b) for a in ops for b in ops if not (allowed[a] & allowed[b]).any()]
    a, b = disjoint[0] if disjoint else ops[allowed[ops].sum(axis=1).argsort(kind="stable")][:2]
    addition = "" if disjoint else " with the rest of it"
    return (
        f"unit_of_op puts ops {names[a]!r} and {names[b]!r} into unit {unit}, but allowed has no device of "
        f"cluster {cluster.name!r} for both{addition}; give them different units"
    )


def checked_problem_arrays(arrays: Mapping[str, object], num_devices: int) -> dict[str, np.ndarray]:
    """The arrays of ``PROBLEM_ARRAYS`` as they are documented, for so many devices.

    Raises:
      InputError: one is not; names it.
    """
    checked = {name: exact(name, arrays[name], dtype) for name, (dtype, _) in PROBLEM_ARRAYS.items()}
    sizes = {"D": num_devices}
    for letter, name in (
        ("N", "unit_of_op"),
        ("U", "resident_bytes"),
        ("T", "tensor_bytes"),
        ("E", "consumer_op"),
    ):
        sizes[letter] = checked[name].size
    if not sizes["N"]:
        raise InputError("unit_of_op has no entries; a problem needs at least one op")
    for name, (_, letters) in PROBLEM_ARRAYS.items():
        shape = (sizes["T"] + 1,) if letters == "T+1" else tuple(sizes[letter] for letter in letters)
        if checked[name].shape != shape:
            raise InputError(
                f"{name} has shape {checked[name].shape}, expected {shape}: [{', '.join(letters)}]"
            )
    for name in ("compute_ns", "tensor_bytes", "resident_bytes"):
        check_least("a cost or a size", name, checked[name])
    for name, letter in (("unit_of_op", "U"), ("tensor_producer", "N"), ("consumer_op", "N")):
        arguments.check_positions(name, checked[name], sizes[letter])
    offset = checked["consumer_offset"]
    if offset[0] != 0 or offset[-1] != sizes["E"] or (np.diff(offset) < 0).any():
        raise InputError(
            f"consumer_offset must begin with 0, end with {sizes['E']} (the length of consumer_op) and never fall"
        )
    if (np.diff(checked["tensor_producer"]) < 0).any():
        raise InputError("tensor_producer falls; give the tensors in the order of the ops that make them")
    if (checked["consumer_op"] <= checked["tensor_producer"][tensor_of_edge(offset)]).any():
        raise InputError(
            "consumer_op has an op that is not after its producer; give ops in topological order"
        )
    _check_homes(checked["allowed"])
    return checked


def checked_aliases(alias_of_tensor: object, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """[T] int32 for a problem of these arrays, -1 throughout where none are given.

    Raises:
      InputError: one is of no tensor that the producer reads, or of a tensor of 0 bytes.
    """
    num_tensors = len(arrays["tensor_producer"])
    sources = exact("alias_of_tensor", alias_of_tensor, np.int32)
    if sources.shape == (0,):
        return np.full(num_tensors, -1, np.int32)
    if sources.shape != (num_tensors,):
        raise InputError(
            f"alias_of_tensor has shape {sources.shape}, expected ({num_tensors},): one per tensor, or none"
        )
    sharing = np.flatnonzero(sources != -1)
    arguments.check_positions("alias_of_tensor", sources[sharing], num_tensors)
    offset, num_ops = arrays["consumer_offset"], len(arrays["unit_of_op"])
    reads = tensor_of_edge(offset).astype(np.int64) * num_ops + arrays["consumer_op"]  # ascending
    reuses = sources[sharing].astype(np.int64) * num_ops + arrays["tensor_producer"][sharing]
    wrong = ~np.isin(reuses, reads) | (arrays["tensor_bytes"][sharing] == 0)
    if wrong.any():
        tensor = int(sharing[np.argmax(wrong)])
        raise InputError(
            f"alias_of_tensor: tensor {tensor} has the memory of tensor {sources[tensor]}; give one that its op reads, "
            "and -1 for a tensor of 0 bytes"
        )
    return sources


def checked_names(argument: str, names: object, count: int) -> tuple[str, ...]:
    """``names`` as so many distinct texts.

    Raises:
      InputError: they are not.
    """
    texts = arguments.items_of(argument, names, str, "give one name for each")
    check_length(argument, texts, count)
    if len(set(texts)) != count:
        seen: set[str] = set()
        twice = next(name for name in texts if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"{argument} has {twice!r} twice; a placement file needs distinct names")
    return texts


def check_length(argument: str, entries: Sized, count: int) -> None:
    """Raises InputError unless there are ``count`` entries."""
    if len(entries) != count:
        raise InputError(f"{argument} has {len(entries)} entries, expected {count}: give one for each row")


def check_least(what: str, argument: str, array: np.ndarray) -> None:
    """Raises InputError where an array has a negative number."""
    if array.dtype != bool and (array < 0).any():
        raise InputError(f"{argument} has a negative entry ({array.min()}); {what} is at least 0")


def _pairs(argument: str, value: object) -> np.ndarray:
    pairs = exact(argument, value, np.int32)
    if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
        raise InputError(
            f"{argument} has shape {pairs.shape}, expected (edges, 2): producer unit and consumer unit"
        )
    return pairs.reshape(-1, 2)


def _check_homes(allowed: np.ndarray) -> None:
    homeless = ~allowed.any(axis=1)
    if homeless.any():
        raise InputError(
            f"allowed gives unit {int(np.argmax(homeless))} no device at all; allow at least one"
        )


def _check_sum(argument: str, array: np.ndarray, most: int, unit: str) -> None:
    # In float64, which no sum of int64 overflows.
    total = array.sum(dtype=np.float64)
    if total >= most:
        raise InputError(
            f"{argument} adds up to {total:.3g} {unit}, more than can be computed with; give less than {most:.3g}"
        )


def checked_stages(stage_of_op: object, num_ops: int) -> np.ndarray:
    """[N] int32 stages from 0, or -1 for unknown; an empty array stands for -1 of every op.

    Raises:
      InputError: it is not so.
    """
    stages = exact("stage_of_op", stage_of_op, np.int32)
    if not stages.size:
        return np.full(num_ops, -1, np.int32)
    if stages.shape != (num_ops,):
        raise InputError(f"stage_of_op has shape {stages.shape}, expected ({num_ops},): a stage for each op")
    if stages.min() < -1:
        raise InputError(f"stage_of_op has the entry {stages.min()}; give stages from 0, or -1 for none")
    return stages


def checked_fusible(fusible_of_op: object, num_ops: int) -> np.ndarray:
    """[N] bool; for an empty array none.

    Raises:
      InputError: it is not so.
    """
    fusible = exact("fusible_of_op", fusible_of_op, bool)
    if not fusible.size:
        return np.zeros(num_ops, bool)
    if fusible.shape != (num_ops,):
        raise InputError(
            f"fusible_of_op has shape {fusible.shape}, expected ({num_ops},): one entry for each op"
        )
    return fusible
