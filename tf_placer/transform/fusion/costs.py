"""Clusters of a problem: merging, costs, and the plan in which each cluster is one op, for the simulator."""

from __future__ import annotations

import dataclasses

import numpy as np

from colocation.op_facts import topological_order
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import in_unit
from tf_placer.problem.op_graph import tensor_table
from tf_placer.problem.placement import NO_CLUSTER, Placement
from tf_placer.problem.problem import CLUSTER, Problem
from tf_placer.transform.fusion.clusters import PREFIX, contracted, convex_roots, large_enough

_LEAST_MERGED = 2  # kernels in a cluster: with one there is nothing to save


def merged_by_priority(problem: Problem, device_of_op: np.ndarray, priority_of_op: np.ndarray) -> np.ndarray:
    """[N] int32, legal clusters as in ``Decisions``; -1 for ops in none.

    GO merges ops with their neighbors in the order of a priority of each (Zhou et al. 2020). Priorities have few
    values, so all ops of one value are merged at once, with those of higher values. A merged cluster stays together;
    later ops that would close a cycle through the cluster stay outside (``convex_roots``).

    Args:
      problem: N ops, of which some may be fused (``Problem.fusible_of_op``).
      device_of_op: [N]; a cluster is on one device.
      priority_of_op: [N] whole numbers, higher is merged first; 0 is not merged at all.
    """
    tensor, edges = _edges(problem)
    is_data = problem.tensor_bytes[tensor] > 0
    may = problem.fusible_of_op & (priority_of_op > 0)
    node = np.arange(problem.num_ops)  # an op of the cluster that each op is in
    for least in np.unique(priority_of_op[may])[::-1]:
        between = node[edges]
        leaves = between[:, 0] != between[:, 1]
        order = topological_order(problem.num_ops, between[leaves])
        place = np.argsort(order)
        merges = (may & (priority_of_op >= least))[order].tolist()
        devices = device_of_op[order].tolist()
        keys = [device if merged else None for device, merged in zip(devices, merges, strict=True)]
        roots = convex_roots(place[between[leaves]], place[between[leaves & is_data]], keys)
        node = np.where(roots == NO_CLUSTER, order, order[roots])[place][node]
    return large_enough(np.where(may, node, NO_CLUSTER), launches(problem) > 0, _LEAST_MERGED)


def _edges(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """[E] tensor and [E, 2] producer and consumer of each edge."""
    graph = problem.op_graph
    return graph.tensor, np.stack([graph.producer, graph.consumer], axis=1)


@dataclasses.dataclass(frozen=True)
class Savings:
    """Savings of clusters in a step."""

    clusters: int
    ops: int  # in clusters
    kernels: int  # that are not started
    num_bytes: int  # of tensors that never leave a cluster

    def sentence(self, by: str = "") -> str:
        """Clusters and savings, without a full stop; ``by`` is what made the clusters."""
        origin = f" ({by})" if by else ""
        return (
            f"{self.ops} ops are fused in {self.clusters} {'cluster' if self.clusters == 1 else 'clusters'}{origin}, "
            f"which saves {self.kernels} kernels and {in_unit(self.num_bytes, 'MB')} of memory traffic a step"
        )


def savings(problem: Problem, cluster_of_op: np.ndarray) -> Savings:
    """Savings of clusters [N] of a problem's ops."""
    fused = cluster_of_op != NO_CLUSTER
    clusters = len(np.unique(cluster_of_op[fused]))
    kernels = int((launches(problem)[fused] > 0).sum())
    num_bytes = int(_inner_bytes(problem, cluster_of_op).sum())
    return Savings(clusters, int(fused.sum()), max(kernels - clusters, 0), num_bytes)


def savings_of(placement: Placement) -> Savings:
    """Savings of a plan's clusters; zeros without clusters."""
    nothing = np.full(placement.problem.num_ops, NO_CLUSTER, np.int32)
    return savings(placement.problem, nothing if placement.cluster_of_op is None else placement.cluster_of_op)


def fused_ns(problem: Problem, cluster_of_op: np.ndarray) -> np.ndarray:
    """[C, D] int64, time of each cluster on each device.

    The sum over its ops, less a launch for every kernel but one and less the time for writing and reading the tensors
    that stay inside to and from the device's memory; at least one launch.

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
    """The plan with each cluster as one op and every op as a unit, and the first op [N'] of each node.

    A cluster has the priority of its op that comes first. Its name is that of its call in the written graph, in the
    scope of its first op; its type is the number of its ops. A plan without clusters is returned as it is.

    Raises:
      InputError: clusters make a cycle, or one is on two devices.
    """
    problem, cluster_of_op = placement.problem, placement.cluster_of_op
    if cluster_of_op is None:
        return placement, np.arange(problem.num_ops, dtype=np.int32)
    number, first_op = _contracted(problem, cluster_of_op)
    count = len(first_op)
    device_of_op, first_of_op = placement.device_of_op, first_op[number]
    for op in np.flatnonzero(device_of_op != device_of_op[first_of_op])[:1].tolist():
        member = int(first_of_op[op])
        on = [problem.cluster.devices[device_of_op[o]].name for o in (member, op)]
        raise InputError(
            f"cluster {int(cluster_of_op[op])} has {problem.op_names[member]!r} on {on[0]} and "
            f"{problem.op_names[op]!r} on {on[1]}; give all of a cluster the same device, or make it two"
        )
    compute_ns = np.zeros((count, problem.num_devices), np.int64)
    outside = cluster_of_op == NO_CLUSTER
    compute_ns[number[outside]] = problem.compute_ns[outside]
    clusters, dense = np.unique(cluster_of_op[~outside], return_inverse=True)
    renumbered = np.full(problem.num_ops, NO_CLUSTER, np.int32)
    renumbered[~outside] = dense
    node_of_cluster = np.zeros(len(clusters), np.int64)
    node_of_cluster[dense] = number[~outside]
    compute_ns[node_of_cluster] = fused_ns(problem, renumbered)
    resident_bytes = np.zeros(count, np.int64)
    first_of_unit = np.full(problem.num_units, problem.num_ops)
    np.minimum.at(first_of_unit, problem.unit_of_op, np.arange(problem.num_ops))
    np.add.at(resident_bytes, number[first_of_unit], problem.resident_bytes)
    tensor, edges = _edges(problem)
    edges = number[edges]
    leaves = edges[:, 0] != edges[:, 1]
    table = tensor_table(
        edges[leaves].astype(np.int32), tensor[leaves].astype(np.int32), problem.tensor_bytes[tensor[leaves]]
    )
    ops_of_node = np.bincount(number, minlength=count).tolist()
    names, types = [], []
    for op, ops in zip(first_op.tolist(), ops_of_node, strict=True):
        scope, slash, _ = problem.op_names[op].rpartition("/")
        call = f"{scope}{slash}{PREFIX}_{int(cluster_of_op[op])}"
        names.append(problem.op_names[op] if outside[op] else call)
        types.append(problem.op_types[op] if outside[op] else f"{CLUSTER}{ops} ops")
    fused = dataclasses.replace(
        problem,
        unit_of_op=np.arange(count, dtype=np.int32),
        compute_ns=compute_ns,
        tensor_producer=table.producer,
        tensor_bytes=table.num_bytes,
        consumer_offset=table.consumer_offset,
        consumer_op=table.consumer_op,
        resident_bytes=resident_bytes,
        allowed=np.ones((count, problem.num_devices), bool),
        priority=problem.priority[first_op],
        op_names=tuple(names),
        op_types=tuple(types),
        output_shapes=tuple(problem.output_shapes[op] for op in first_op),
        work=None,
        alias_of_tensor=np.zeros(0, np.int32),
        stage_of_op=np.zeros(0, np.int32),
        fusible_of_op=np.zeros(0, bool),
    )
    priority_of_op = None
    if placement.priority_of_op is not None:
        priority_of_op = placement.priority_of_op[first_op]
        np.minimum.at(priority_of_op, number, placement.priority_of_op)
    return Placement(fused, device_of_op[first_op], priority_of_op), first_op


def _contracted(problem: Problem, cluster_of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of each op [N] among the N' nodes in topological order, and the first op [N'] of each node."""
    node, edges = contracted(_edges(problem)[1], cluster_of_op)
    order = topological_order(problem.num_ops, edges)
    if len(order) < problem.num_ops:
        stuck = np.setdiff1d(np.arange(problem.num_ops), order)
        inside = next(int(op) for op in stuck if (node == op).sum() > 1)
        raise InputError(
            f"cluster {int(cluster_of_op[inside])}, of {problem.op_names[inside]!r} and others, is in a cycle: "
            "something outside needs it and it needs that; make it two"
        )
    first_op = order[node[order] == order]
    position = np.zeros(problem.num_ops, np.int64)
    position[first_op] = np.arange(len(first_op))
    return position[node], first_op


def launches(problem: Problem) -> np.ndarray:
    """[N] kernels of each op; in a profiled graph one for each op that takes time."""
    return (problem.fastest_ns() > 0) if problem.work is None else problem.work.launches


def _inner_bytes(problem: Problem, cluster_of_op: np.ndarray) -> np.ndarray:
    """[N] bytes of each op's tensors with memory of their own that only ops of its cluster read."""
    tensor, edges = _edges(problem)
    producer = problem.tensor_producer
    is_inner = (cluster_of_op[producer] != NO_CLUSTER) & (np.diff(problem.consumer_offset) > 0)
    clusters = cluster_of_op[edges]
    is_inner[tensor[clusters[:, 0] != clusters[:, 1]]] = False
    num_bytes = np.zeros(problem.num_ops, np.int64)
    np.add.at(num_bytes, producer[is_inner], problem.own_bytes()[is_inner])
    return num_bytes
