"""Checks of a problem's arrays: shapes, signs, positions, sums; edges to tensors."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np

from colocation.op_facts import topological_order
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, exact
from tf_placer.cluster.cluster import Cluster


@dataclasses.dataclass(frozen=True, eq=False)
class TensorTable:
    """T tensors by ascending producer, and the consumers of each (see ``Problem``)."""

    producer: np.ndarray  # [T] int32
    output: np.ndarray  # [T] the id of each among its producer's
    num_bytes: np.ndarray  # [T] int64
    consumer_offset: np.ndarray  # [T + 1] int32
    consumer_op: np.ndarray  # [E'] int32


def tensor_of_edge(consumer_offset: np.ndarray) -> np.ndarray:
    """[E] int64: the tensor of each entry of ``consumer_op``, from where each tensor's entries begin [T + 1]."""
    return np.repeat(np.arange(len(consumer_offset) - 1), np.diff(consumer_offset))


def tensor_table(edges: np.ndarray, tensor_ids: np.ndarray, bytes_of_edge: np.ndarray) -> TensorTable:
    """Groups edges of one tensor; a consumer reading a tensor twice waits once, and no op waits for itself.

    Args:
      edges: [E, 2] producer op, consumer op; an edge of an op to itself is a tensor that may have no consumer.
      tensor_ids: [E] ids; edges of one producer with one id are one tensor.
      bytes_of_edge: [E] int64; a tensor has the bytes of its largest edge.
    """
    keys = np.stack([edges[:, 0], tensor_ids, edges[:, 1]], axis=1)
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    keys, num_bytes = keys[order], bytes_of_edge[order]
    begins_tensor = np.ones(len(keys), bool)
    begins_tensor[1:] = (keys[1:, :2] != keys[:-1, :2]).any(axis=1)
    begins_consumer = begins_tensor.copy()
    begins_consumer[1:] |= keys[1:, 2] != keys[:-1, 2]
    starts = np.flatnonzero(begins_tensor)
    consumers = np.flatnonzero(begins_consumer & (keys[:, 0] != keys[:, 2]))
    counts = np.bincount((np.cumsum(begins_tensor) - 1)[consumers], minlength=len(starts))
    largest = np.maximum.reduceat(num_bytes, starts) if len(starts) else np.zeros(0, np.int64)
    return TensorTable(
        producer=keys[starts, 0].astype(np.int32),
        output=keys[starts, 1],
        num_bytes=largest.astype(np.int64),
        consumer_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        consumer_op=keys[consumers, 2].astype(np.int32),
    )


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
    given: Mapping[str, Any], cluster: Cluster, names: Sequence[str] | None, name: str
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
        waiting = np.setdiff1d(np.arange(num_ops), order)  # on a cycle or behind one
        inside = edges[np.isin(edges[:, 0], waiting) & np.isin(edges[:, 1], waiting)]
        producer = dict(zip(inside[:, 1].tolist(), inside[:, 0].tolist(), strict=True))
        stuck = int(waiting[0])
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
        "name": name,
        "cluster": cluster,
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
    sizes = {"D": num_devices, "T+1": arrays["tensor_bytes"].size + 1}
    for letter, name in (
        ("N", "unit_of_op"),
        ("U", "resident_bytes"),
        ("T", "tensor_bytes"),
        ("E", "consumer_op"),
    ):
        sizes[letter] = arrays[name].size
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
    wrong = sharing[~np.isin(reuses, reads) | (arrays["tensor_bytes"][sharing] == 0)]
    if len(wrong):
        raise InputError(
            f"alias_of_tensor: tensor {wrong[0]} has the memory of tensor {alias[wrong[0]]}; give one that its op "
            "reads, and -1 for a tensor of 0 bytes"
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
