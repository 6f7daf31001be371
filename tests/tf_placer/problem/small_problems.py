"""Clusters and problems small enough to compute by hand: 1 byte crosses a link in 1 ns."""

import dataclasses

import numpy as np

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device, Link, full_device_name
from tf_placer.problem.problem import Problem

LATENCY_NS = 10


def small_cluster(num_devices: int = 2, memory_bytes: int = 10**12, streams: int = 1) -> Cluster:
    """Like GPUs; every ordered pair of them is a channel of its own, 10 ns + 1 ns a byte."""
    devices = tuple(
        Device(full_device_name(f"GPU:{d}"), "GPU", "toy", memory_bytes, streams, 1e12, 1e11, 0)
        for d in range(num_devices)
    )
    pairs = [(a, b) for a in range(num_devices) for b in range(num_devices) if a != b]
    links = tuple(Link(a, b, LATENCY_NS, 1e9, f"{a}to{b}") for a, b in pairs)
    return Cluster(f"toy{num_devices}", devices, links)


def altered(where, devices=None, links=None):
    """A cluster, or a problem on one, whose devices and links have other fields.

    Args:
      where: the cluster or problem.
      devices, links: by field a value for all, a list of one for each, or a function of what is there.
    """
    if isinstance(where, Problem):
        return dataclasses.replace(where, cluster=altered(where.cluster, devices, links))

    def value(part, index, name, new):
        return new(getattr(part, name)) if callable(new) else new[index] if isinstance(new, list) else new

    def parts(olds, fields):
        changes = [{name: value(old, i, name, fields[name]) for name in fields} for i, old in enumerate(olds)]
        return tuple(dataclasses.replace(old, **change) for old, change in zip(olds, changes, strict=True))

    return dataclasses.replace(
        where, devices=parts(where.devices, devices or {}), links=parts(where.links, links or {})
    )


def with_slower_links(where, factor):
    """As ``altered``: all links take ``factor`` times as long."""
    return altered(where, links={"latency_ns": lambda ns: ns * factor, "bytes_per_s": lambda b: b / factor})


def cluster_of(*types: str) -> Cluster:
    """A small cluster of GPUs and CPUs."""
    return altered(small_cluster(len(types)), {"type": list(types)})


def without_overheads(cluster: Cluster) -> Cluster:
    """The cluster where hosts feed kernels and hand over tensors in no time: steps are of ops and wires alone."""
    return altered(cluster, {"dispatch_ns": 0}, {"tensor_ns": 0})


def problem_of(
    compute_ns, edges, edge_bytes=0, cluster: Cluster | None = None, resident_bytes=0, output_bytes=0, **more
) -> Problem:
    """``Problem.from_arrays`` with one cost for all devices, and numbers for whole columns.

    Args:
      compute_ns: [U], or [U, D] where devices differ.
      edges: pairs of units.
      edge_bytes, resident_bytes, output_bytes: one number for all, or arrays.
      cluster: two devices by default.
      **more: ``names``, ``edge_tensor`` or ``allowed``.
    """
    cluster = cluster or small_cluster()
    compute_ns = np.array(compute_ns, np.int64)
    if compute_ns.ndim == 1:
        compute_ns = np.repeat(compute_ns[:, np.newaxis], cluster.num_devices, axis=1)
    edges = np.array(edges, np.int32).reshape(-1, 2)
    units = len(compute_ns)
    return Problem.from_arrays(
        compute_ns=compute_ns,
        edges=edges,
        edge_bytes=np.broadcast_to(np.array(edge_bytes, np.int64), len(edges)),
        resident_bytes=np.broadcast_to(np.array(resident_bytes, np.int64), units),
        output_bytes=np.broadcast_to(np.array(output_bytes, np.int64), units),
        allowed=more.pop("allowed", np.ones((units, cluster.num_devices), bool)),
        cluster=cluster,
        **more,
    )


def branches_problem(branches: int, length: int, num_devices: int = 2, op_ns: int = 1000) -> Problem:
    """A source, independent chains of equal ops, and a sink; dear to cut inside a chain, cheap at its ends.

    Unit 1 + i * branches + b is op i of branch b, so neither the numbering nor a breadth-first walk
    keeps a branch together. With ``branches`` a multiple of D, the fastest placement puts whole
    branches on devices, equally many on each: see ``branches_optimum_ns``.
    """
    unit = lambda i, b: 1 + i * branches + b  # noqa: E731
    sink = 1 + branches * length
    edges, edge_bytes = [], []
    for b in range(branches):
        edges += [(0, unit(0, b))] + [(unit(i, b), unit(i + 1, b)) for i in range(length - 1)]
        edges += [(unit(length - 1, b), sink)]
        edge_bytes += [100] + [4 * op_ns] * (length - 1) + [100]
    return problem_of(
        [10, *[op_ns] * (branches * length), 10],
        edges,
        edge_bytes,
        cluster=small_cluster(num_devices),
        # The source's output is one tensor that every branch reads.
        edge_tensor=[0 if source == 0 else e + 1 for e, (source, _) in enumerate(edges)],
    )


def branches_optimum_ns(branches: int, length: int, op_ns: int = 1000) -> int:
    """Step time on two devices of half the branches on each, the sink on the device without the source.

    The far device waits for the source's tensor (10 + 110 ns), computes its branches one op at a time, and
    the sink; the results of the near one, done 110 ns earlier, cross meanwhile.
    """
    return 10 + 110 + branches // 2 * length * op_ns + 10


def random_problem(
    generator: np.random.Generator, units: int, num_devices: int, streams: int = 1,
    density: float = 0.4, share_allowed: float = 0.7, devices_differ: bool = True,
) -> Problem:  # fmt: skip
    """Random costs, edges, tensors and permissions."""
    pairs = [(a, b) for a in range(units) for b in range(a + 1, units) if generator.random() < density]
    allowed = generator.random((units, num_devices)) < share_allowed
    allowed[np.arange(units), generator.integers(0, num_devices, units)] = True
    return problem_of(
        generator.integers(0, 1000, (units, num_devices) if devices_differ else units),
        pairs,
        generator.integers(0, 500, len(pairs)),
        cluster=small_cluster(num_devices, streams=streams),
        allowed=allowed,
    )


def sparse_problem(generator: np.random.Generator, units: int, num_devices: int) -> Problem:
    """As ``random_problem``, with one to four edges from each unit and the same costs on all devices."""
    density = min(0.9, generator.uniform(1, 4) / units)
    return random_problem(generator, units, num_devices, 1, density, share_allowed=0.9, devices_differ=False)


def layered_problem(
    generator: np.random.Generator, columns: np.ndarray, layers: int, num_devices: int = 4
) -> Problem:
    """Layers of equally many units, each of which reads three in the layer before: of its column and beside it.

    48,000 bytes for each edge: on random devices the channels are as busy as the devices are.

    Args:
      generator: draws the costs.
      columns: [W] a permutation; side by side are those that it names one after the other.
      layers: how many.
      num_devices: of the cluster.
    """
    width = len(columns)
    pairs = np.concatenate(
        [np.stack([np.roll(columns, shift), columns + width], axis=1) for shift in (-1, 0, 1)]
    )
    edges = (pairs + width * np.arange(layers - 1)[:, np.newaxis, np.newaxis]).reshape(-1, 2)
    compute_ns = generator.integers(5_000, 55_000, width * layers)
    return problem_of(compute_ns, edges, 48_000, cluster=small_cluster(num_devices))


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
    return problem_of(
        work_ns,
        edges,
        tensor_bytes,
        cluster,
        output_bytes=tensor_bytes,
        allowed=np.broadcast_to(is_gpu, (units, len(is_gpu))),
        edge_tensor=edges[:, 0],  # one output per op: the source's goes to each device once
        name=f"multi_branch_{branches}x{depth}",
    )


def multi_branch_bound_s(branches: int = 8, depth: int = 6, devices: int = 2) -> float:
    """Seconds that no placement on ``devices`` equal GPUs can beat."""
    return (2 * ENDS_NS + branches * depth * OP_NS / devices) / 1e9
