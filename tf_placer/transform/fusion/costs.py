"""Costs of clusters, from what a problem keeps: a plan in which each cluster is one op, for the simulator."""

from __future__ import annotations

import dataclasses

import numpy as np

from colocation.op_facts import topological_order
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import in_unit
from tf_placer.problem.check_arrays import tensor_table
from tf_placer.problem.decisions import NO_CLUSTER
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.transform.fusion.clusters import PREFIX


@dataclasses.dataclass(frozen=True)
class Savings:
    """What clusters save in a step.

    Attributes:
      clusters: how many there are.
      ops: in clusters.
      kernels: started less.
      num_bytes: of tensors that never leave a cluster.
    """

    clusters: int
    ops: int
    kernels: int
    num_bytes: int

    def sentence(self, by: str = "") -> str:
        """What is fused and what that saves, without a full stop; ``by`` is what made the clusters."""
        made = f" ({by})" if by else ""
        return (
            f"{self.ops} ops are fused in {self.clusters} {'cluster' if self.clusters == 1 else 'clusters'}{made}, "
            f"which saves {self.kernels} kernels and {in_unit(self.num_bytes, 'MB')} of memory traffic a step"
        )


def savings(problem: Problem, cluster_of_op: np.ndarray) -> Savings:
    """What clusters [N] of a problem's ops save."""
    clusters = len(np.unique(cluster_of_op[cluster_of_op != NO_CLUSTER]))
    fused = cluster_of_op != NO_CLUSTER
    kernels = int((launches(problem)[fused] > 0).sum())
    return Savings(
        clusters,
        int(fused.sum()),
        max(kernels - clusters, 0),
        int(_inner_bytes(problem, cluster_of_op).sum()),
    )


def savings_of(placement: Placement) -> Savings:
    """What the clusters of a plan save; nothing where it has none."""
    nothing = np.full(placement.problem.num_ops, NO_CLUSTER, np.int32)
    return savings(placement.problem, nothing if placement.cluster_of_op is None else placement.cluster_of_op)


def fused_ns(problem: Problem, cluster_of_op: np.ndarray) -> np.ndarray:
    """[C, D] int64, the time of each cluster on each device.

    A cluster takes what its ops take together, less a launch for every kernel but one, and less the time that the
    device's memory takes to write and read the tensors that stay inside; no less than one launch.

    Args:
      problem: with N ops.
      cluster_of_op: [N] as in ``Decisions``, numbered from 0 without gaps.
    """
    devices = problem.cluster.devices
    count = int(cluster_of_op.max(initial=NO_CLUSTER)) + 1
    fused = cluster_of_op != NO_CLUSTER
    total = np.zeros((count, len(devices)), np.int64)
    np.add.at(total, cluster_of_op[fused], problem.compute_ns[fused])
    kernels, inner = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(kernels, cluster_of_op[fused], launches(problem)[fused] > 0)
    np.add.at(inner, cluster_of_op[fused], _inner_bytes(problem, cluster_of_op)[fused])
    launch_ns = np.array([device.launch_ns for device in devices], np.float64)
    rate = np.array([device.memory_bytes_per_s / device.streams for device in devices], np.float64)
    saved_ns = np.maximum(kernels - 1, 0)[:, np.newaxis] * launch_ns + 2e9 * inner[:, np.newaxis] / rate
    return np.rint(np.maximum(total - saved_ns, np.minimum(launch_ns, total))).astype(np.int64)


def fused_plan(placement: Placement) -> tuple[Placement, np.ndarray]:
    """The plan over a problem in which each cluster is one op and every op is a unit, and the first op of each [N'].

    A cluster has the priority of that of its ops which comes first. Its name is that of its call in the written graph,
    in the scope of its first op; its type is how many ops it is.

    Args:
      placement: with clusters.

    Raises:
      InputError: they make a cycle, or one is on two devices.
    """
    problem, cluster_of_op = placement.problem, placement.cluster_of_op
    assert cluster_of_op is not None, "asked of plans with clusters"
    number, first = _contracted(problem, cluster_of_op)
    count = len(first)
    device_of_op = placement.device_of_op
    _check_devices(placement, first[number])
    compute_ns = np.zeros((count, problem.num_devices), np.int64)
    outside = cluster_of_op == NO_CLUSTER
    compute_ns[number[outside]] = problem.compute_ns[outside]
    clusters, dense = np.unique(cluster_of_op[~outside], return_inverse=True)
    renumbered = np.full(problem.num_ops, NO_CLUSTER, np.int32)
    renumbered[~outside] = dense
    of_cluster = np.zeros(len(clusters), np.int64)
    of_cluster[dense] = number[~outside]
    compute_ns[of_cluster] = fused_ns(problem, renumbered)
    resident_bytes = np.zeros(count, np.int64)
    first_of_unit = np.full(problem.num_units, problem.num_ops)
    np.minimum.at(first_of_unit, problem.unit_of_op, np.arange(problem.num_ops))
    np.add.at(resident_bytes, number[first_of_unit], problem.resident_bytes)
    consumers = np.diff(problem.consumer_offset)
    tensor = np.repeat(np.arange(len(consumers)), consumers)
    edges = np.stack([number[problem.tensor_producer[tensor]], number[problem.consumer_op]], axis=1)
    leaves = edges[:, 0] != edges[:, 1]
    table = tensor_table(
        edges[leaves].astype(np.int32), tensor[leaves].astype(np.int32), problem.tensor_bytes[tensor[leaves]]
    )
    ops_of_node = np.bincount(number, minlength=count).tolist()
    fields = {
        "unit_of_op": np.arange(count, dtype=np.int32),
        "compute_ns": compute_ns,
        "tensor_producer": table.producer,
        "tensor_bytes": table.num_bytes,
        "consumer_offset": table.consumer_offset,
        "consumer_op": table.consumer_op,
        "resident_bytes": resident_bytes,
        "allowed": np.ones((count, problem.num_devices), bool),
        "priority": problem.priority[first],
        "op_names": tuple(_name(placement, op) for op in first.tolist()),
        "op_types": tuple(
            problem.op_types[op] if outside[op] else cluster_type(ops)
            for op, ops in zip(first.tolist(), ops_of_node, strict=True)
        ),
        "output_shapes": tuple(problem.output_shapes[op] for op in first),
    }
    found = dataclasses.replace(
        problem,
        **fields,
        work=None,
        alias_of_tensor=np.zeros(0, np.int32),
        stage_of_op=np.zeros(0, np.int32),
        fusible_of_op=np.zeros(0, bool),
    )
    priority_of_op = None
    if placement.priority_of_op is not None:
        priority_of_op = placement.priority_of_op[first]
        np.minimum.at(priority_of_op, number, placement.priority_of_op)
    return Placement(found, device_of_op[first], priority_of_op), first


def as_simulated(placement: Placement) -> tuple[Placement, np.ndarray]:
    """The plan as it is if it has no clusters, else ``fused_plan``; and the first op [N'] of each node."""
    if placement.cluster_of_op is None:
        return placement, np.arange(placement.problem.num_ops, dtype=np.int32)
    return fused_plan(placement)


def cluster_type(ops: int) -> str:
    """What stands for the type of op of a cluster."""
    return f"fused, {ops} ops"


def is_cluster(op_type: str) -> bool:
    """True of a type that ``cluster_type`` gives."""
    return op_type.startswith("fused, ")


def _name(placement: Placement, op: int) -> str:
    """Name of an op that is in no cluster, or of the cluster that it is the first of."""
    assert placement.cluster_of_op is not None
    name, cluster = placement.problem.op_names[op], int(placement.cluster_of_op[op])
    if cluster == NO_CLUSTER:
        return name
    scope, slash, _ = name.rpartition("/")
    return f"{scope}{slash}{PREFIX}_{cluster}"


def _check_devices(placement: Placement, first_of_op: np.ndarray) -> None:
    """Raises InputError where a cluster is on two devices; ``first_of_op`` [N] is the first op of each op's node."""
    assert placement.cluster_of_op is not None
    device, names = placement.device_of_op, placement.problem.op_names
    apart = np.flatnonzero(device != device[first_of_op])
    if len(apart):
        op, other = int(apart[0]), int(first_of_op[apart[0]])
        on = [placement.problem.cluster.devices[d].name for d in device[[other, op]]]
        raise InputError(
            f"cluster {int(placement.cluster_of_op[op])} has {names[other]!r} on {on[0]} and {names[op]!r} on {on[1]}; "
            "give all of a cluster the same device, or make it two"
        )


def _contracted(problem: Problem, cluster_of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of each op [N] among the N' nodes in topological order, and the first op [N'] of each node."""
    node = np.arange(problem.num_ops)
    for cluster in np.unique(cluster_of_op[cluster_of_op != NO_CLUSTER]):
        ops = np.flatnonzero(cluster_of_op == cluster)
        node[ops] = ops[0]
    consumers = np.diff(problem.consumer_offset)
    producer = np.repeat(problem.tensor_producer, consumers)
    edges = np.stack([node[producer], node[problem.consumer_op]], axis=1)
    order = topological_order(problem.num_ops, edges[edges[:, 0] != edges[:, 1]])
    if len(order) < problem.num_ops:
        stuck = np.setdiff1d(np.arange(problem.num_ops), order)
        inside = next(int(op) for op in stuck if (node == op).sum() > 1)
        raise InputError(
            f"cluster {int(cluster_of_op[inside])}, of {problem.op_names[inside]!r} and others, is in a cycle: "
            "something outside needs it and it needs that; make it two"
        )
    first = order[node[order] == order]
    position = np.zeros(problem.num_ops, np.int64)
    position[first] = np.arange(len(first))
    return position[node], first


def launches(problem: Problem) -> np.ndarray:
    """[N] kernels of each op; of a profiled graph one of what takes time."""
    return (problem.fastest_ns() > 0) if problem.work is None else problem.work.launches


def _inner_bytes(problem: Problem, cluster_of_op: np.ndarray) -> np.ndarray:
    """[N] bytes of each op's tensors that are read by ops of its own cluster alone, and take memory of their own."""
    consumers = np.diff(problem.consumer_offset)
    tensor = np.repeat(np.arange(len(consumers)), consumers)
    producer = problem.tensor_producer
    is_inner = (cluster_of_op[producer] != NO_CLUSTER) & (consumers > 0)
    leaves = cluster_of_op[problem.consumer_op] != cluster_of_op[producer[tensor]]
    is_inner[tensor[leaves]] = False
    found = np.zeros(problem.num_ops, np.int64)
    np.add.at(found, producer[is_inner], problem.own_bytes()[is_inner])
    return found
