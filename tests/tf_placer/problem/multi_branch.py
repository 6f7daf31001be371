"""A problem with a known optimum: parallel chains between a source and a sink."""

import numpy as np

from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.problem import Problem

ENDS_NS = 100_000
OP_NS = 1_000_000


def multi_branch_problem(
    cluster: Cluster, branches: int = 8, depth: int = 6, tensor_bytes: int = 1 << 20
) -> Problem:
    """``branches`` chains of ``depth`` ops of 1 ms, all fed by one source and read by one sink.

    CPUs may not run anything, so on two equal GPUs no placement ends before ``multi_branch_bound_s``:
    source and sink stand alone, and one device has at least half of the chains' work. Half of the
    chains on each device exceeds that by their transfers only. Unit 1 + b * depth + i is op i of chain b.
    """
    units = branches * depth + 2
    chain = 1 + np.arange(branches * depth).reshape(branches, depth)
    edges = np.concatenate(
        [
            np.stack([np.zeros(branches, int), chain[:, 0]], axis=1),
            np.stack([chain[:, :-1].ravel(), chain[:, 1:].ravel()], axis=1),
            np.stack([chain[:, -1], np.full(branches, units - 1)], axis=1),
        ]
    )
    work_ns = np.full(units, OP_NS)
    work_ns[[0, -1]] = ENDS_NS
    is_gpu = np.array([device.type == "GPU" for device in cluster.devices])
    return Problem.from_arrays(
        compute_ns=np.repeat(work_ns[:, np.newaxis], len(is_gpu), axis=1),
        edges=edges,
        edge_bytes=np.full(len(edges), tensor_bytes),
        resident_bytes=np.zeros(units),
        output_bytes=np.full(units, tensor_bytes),
        allowed=np.broadcast_to(is_gpu, (units, len(is_gpu))),
        cluster=cluster,
        edge_tensor=edges[:, 0],  # one output per op: the source's goes to each device once
        name=f"multi_branch_{branches}x{depth}",
    )


def multi_branch_bound_s(branches: int = 8, depth: int = 6, devices: int = 2) -> float:
    """Seconds that no placement on ``devices`` equal GPUs can beat."""
    return (2 * ENDS_NS + branches * depth * OP_NS / devices) / 1e9
