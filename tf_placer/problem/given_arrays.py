"""A graph that was profiled elsewhere: the arrays of ``Problem.from_arrays`` made the fields of a problem."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from colocation.graph_index import topological_order
from tf_placer import arguments
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.problem.check_arrays import checked_arrays, checked_names, checked_units
from tf_placer.problem.tensors import TensorTable, tensor_table

_IN_DIGEST = ("compute_ns", "edges", "edge_bytes", "edge_tensor", "resident_bytes", "output_bytes")


def fields_of_arrays(
    arrays: Mapping[str, object],
    cluster: Cluster,
    names: Sequence[str] | None,
    name: str,
    unit_of_op: object | None,
) -> dict[str, Any]:
    """Field of ``Problem`` -> value, for arguments as ``Problem.from_arrays`` documents them.

    Raises:
      InputError: as there.
    """
    of = checked_arrays(arrays, cluster)
    compute_ns, edges, resident_bytes, allowed = (
        of[name] for name in ("compute_ns", "edges", "resident_bytes", "allowed")
    )
    num_ops, what = len(compute_ns), "unit" if unit_of_op is None else "op"
    names = [f"{what}_{op}" for op in range(num_ops)] if names is None else names
    names = checked_names("names", names, num_ops)
    name = arguments.text("name", name, "give the name that reports call it by")
    order = topological_order(num_ops, edges)
    if len(order) != num_ops:
        stuck = _op_on_cycle(np.setdiff1d(np.arange(num_ops), order), edges)
        raise InputError(
            f"edges form a cycle through {what} {stuck} ({names[stuck]!r}); a step must be acyclic"
        )
    graph = [of[name] for name in _IN_DIGEST]
    if unit_of_op is None:
        units = np.arange(num_ops, dtype=np.int32)
    else:
        units = checked_units(unit_of_op, allowed, names, cluster)
        graph.append(units)
        resident_bytes, allowed = _joined(units, resident_bytes, allowed)
    table = _tensors(np.argsort(order), of)
    return {
        "name": name,
        "cluster": cluster,
        "unit_of_op": units[order],
        "compute_ns": compute_ns[order],
        "tensor_producer": table.producer,
        "tensor_bytes": table.num_bytes,
        "consumer_offset": table.consumer_offset,
        "consumer_op": table.consumer_op,
        "resident_bytes": resident_bytes,
        "allowed": allowed,
        "priority": np.zeros(num_ops, np.int32),
        "op_names": tuple(names[op] for op in order),
        "op_types": ("",) * num_ops,
        "output_shapes": tuple(((int(of["output_bytes"][op]),),) for op in order),
        "fingerprint": _digest(graph),
    }


def _joined(
    units: np.ndarray, resident_bytes: np.ndarray, allowed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[U] and [U, D]: what the ops of each unit need together, and where all of them may be."""
    count = int(units.max()) + 1
    needed, may = np.zeros(count, np.int64), np.ones((count, allowed.shape[1]), bool)
    np.add.at(needed, units, resident_bytes)
    np.logical_and.at(may, units, allowed)
    return needed, may


def _tensors(new_number: np.ndarray, of: Mapping[str, np.ndarray]) -> TensorTable:
    """The tensors between ops by their new numbers [N], with what an op holds beyond what others read of it."""
    table = tensor_table(of["edges"], of["edge_tensor"], of["edge_bytes"])
    read_bytes = np.zeros(len(new_number), np.int64)
    np.add.at(read_bytes, table.producer, table.num_bytes)
    excess = np.maximum(of["output_bytes"] - read_bytes, 0)
    ops = np.flatnonzero(excess)
    return tensor_table(
        np.concatenate([new_number[of["edges"]], new_number[ops, np.newaxis].repeat(2, axis=1)]),
        np.concatenate([of["edge_tensor"], np.full(len(ops), -1)]),
        np.concatenate([of["edge_bytes"], excess[ops]]),
    ).without_self_consumers()


def _op_on_cycle(stuck: np.ndarray, edges: np.ndarray) -> int:
    """One of the ``stuck`` ops (on a cycle or behind one) that is itself on a cycle."""
    inside = edges[np.isin(edges[:, 0], stuck) & np.isin(edges[:, 1], stuck)]
    producer = dict(zip(inside[:, 1].tolist(), inside[:, 0].tolist(), strict=True))
    op = int(stuck[0])
    # Every stuck op waits for a stuck one: as many steps back as there are ops end on a cycle.
    for _ in stuck:
        op = producer[op]
    return op


def _digest(arrays: Sequence[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
