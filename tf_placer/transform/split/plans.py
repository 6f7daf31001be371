"""Parts of the batch in a problem, plans of a split program without search, and ops that are faster whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ortools.graph.python import max_flow

from tf_placer.graph.program import SHARED
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.transform.split.split_batch import SplitProgram

# Share of the step, by the estimate of the cut, that pays for building another program.
_LEAST_GAIN = 0.03
# Of a nanosecond of a host, and of a transfer to or from it, in nanoseconds of an accelerator.
_HOST_PRICES, _TRANSFER_PRICES = (0.25, 0.5, 1.0), (1 / 16, 1.0)


def copies_of_units(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Parts of units, and units that do the same for different parts of the batch, by their costliest ops.

    Args:
      problem: of a whole batch or in P parts, U units, also of groups of units.

    Returns:
      [U] int32, the part that most of a unit's time is for, ``SHARED`` for none and for units that hold variables.
      [U, P] int32, the unit that does the same for each other part, -1 for none; without columns where the batch is
      whole.
    """
    units, splitting = problem.num_units, problem.splitting
    if splitting is None or splitting.parts == 1:
        return np.full(units, SHARED, np.int32), np.zeros((units, 0), np.int32)
    parts, part = splitting.parts, problem.part_of_op()
    time_ns = problem.compute_ns.max(axis=1) + 1  # on the slowest device, above 0
    spent_ns = np.zeros((units, parts + 1), np.int64)  # the last column is of shared ops
    np.add.at(spent_ns, (problem.unit_of_op, part), time_ns)
    part_of = spent_ns.argmax(axis=1).astype(np.int32)
    part_of[(part_of == parts) | (problem.resident_bytes > 0)] = SHARED
    ops = np.flatnonzero(part != SHARED)
    stems: dict[str, int] = {}  # name of an op without its part -> number
    stem = np.array([stems.setdefault(problem.op_names[op].partition("/")[2], len(stems)) for op in ops], int)
    op_of = np.full((len(stems), parts), -1)
    op_of[stem, part[ops]] = ops
    copies = np.full((units, parts), -1, np.int32)
    for target in range(parts):
        copy = op_of[stem, target]
        pairs = (copy >= 0) & (part[ops] != target)
        unit, unit_of_copy = problem.unit_of_op[ops[pairs]], problem.unit_of_op[copy[pairs]]
        counts = (part_of[unit] == part[ops[pairs]]) & (part_of[unit_of_copy] == target)
        keys = unit[counts].astype(np.int64) * units + unit_of_copy[counts]
        pair, pair_of_op = np.unique(keys, return_inverse=True)
        shared_ns = np.bincount(pair_of_op, weights=time_ns[ops[pairs]][counts], minlength=len(pair))
        order = np.argsort(shared_ns, kind="stable")  # of several values NumPy writes the last
        copies[pair[order] // units, target] = pair[order] % units
    return part_of, copies


def data_parallel_plan(problem: Problem, devices: Sequence[int]) -> np.ndarray:
    """The plan in which every device computes its parts of the batch.

    Copy c is on device c, starting over where there are more parts than devices. Variables, with their slots and
    updates, are spread over the devices by their bytes, the largest first; each link then carries as much as in a ring
    all-reduce. A sum of gradients is made where its variable is.

    Returns:
      [U] int32, legal: a unit that its device cannot run is on the first device that can.
    """
    owner = np.full(problem.num_units, SHARED, np.int32)
    part, _ = copies_of_units(problem)
    is_copy = part != SHARED
    owner[is_copy] = np.asarray(devices, np.int32)[part[is_copy] % len(devices)]
    held = np.zeros(len(devices), np.int64)
    resident = problem.resident_bytes
    for unit in np.argsort(-resident, kind="stable"):
        if resident[unit] and owner[unit] == SHARED:
            least = int(held.argmin())
            owner[unit] = devices[least]
            held[least] += resident[unit]
    # The undecided follow the reader of most of their bytes, else the producer.
    graph = problem.op_graph
    order = np.argsort(-graph.edge_bytes, kind="stable")
    source, target = problem.unit_of_op[graph.producer[order]], problem.unit_of_op[graph.consumer[order]]

    def follow(unit: np.ndarray, neighbour: np.ndarray) -> bool:
        undecided = np.flatnonzero((owner[unit] == SHARED) & (owner[neighbour] != SHARED))
        chosen = undecided[::-1]  # of several values NumPy writes the last: that of most bytes
        owner[unit[chosen]] = owner[neighbour[chosen]]
        return bool(len(chosen))

    while follow(source, target) or follow(target, source):
        pass
    owner[owner == SHARED] = devices[0]
    return problem.legalized(owner[np.newaxis])[0]


def carried_over(split: SplitProgram, problem: Problem, placement: Placement) -> np.ndarray:
    """[U] int32, the legal plan of a split program with all copies of an op where a plan of the whole has the op.

    ``problem`` is of ``split.item`` on the cluster of ``placement``, U units.
    """
    device_of = dict(zip(placement.problem.op_names, placement.device_of_op.tolist(), strict=True))
    device_of_op = np.array([device_of[split.origin_of[name]] for name in problem.op_names], np.int32)
    order = np.argsort(problem.compute_ns.max(axis=1), kind="stable")  # a unit goes with its costliest op
    device_of_unit = np.zeros(problem.num_units, np.int32)
    device_of_unit[problem.unit_of_op[order]] = device_of_op[order]
    return problem.legalized(device_of_unit[np.newaxis])[0]


def faster_whole(
    split: SplitProgram, problem: Problem, whole: Problem, devices: Sequence[int], whole_s: float
) -> frozenset[str]:
    """Names of the ops of a program that are better kept whole when its batch is put in parts, by minimum cut.

    A kernel of a thin product or of a small tensor takes nearly as long for a part of the batch as for all of it:
    copies on two devices then gain nothing over one op on either, and launches are paid twice.

    An op in parts costs the time of its copies, shared evenly by the devices; one that stays whole its time, shortened
    as much as placing the whole program shortens the sum of all ops (``whole_s``). An edge between them costs a slice
    or a concatenation and a transfer. A minimum cut of these estimates, which ignore critical paths and the transfer of
    weights, is the choice; a search in the resulting program finds out what it is worth.

    Args:
      split, problem: the program with as much in parts as possible, and that on a cluster.
      whole, whole_s: the whole program on the cluster, and the step of its best placement.
      devices: positions of the devices that compute parts.

    Returns:
      None of them where the estimate gains less than ``_LEAST_GAIN``, or would keep all whole.
    """
    columns = list(devices)
    whole_ns = whole.compute_ns[:, columns].mean(axis=1)
    position = {name: op for op, name in enumerate(whole.op_names)}
    origin = np.array([position[split.origin_of[name]] for name in problem.op_names])
    parts_ns = np.bincount(origin, problem.compute_ns[:, columns].mean(axis=1), minlength=whole.num_ops)
    ops = np.array([position[name] for name in split.split_ops], int)
    node_of = np.full(whole.num_ops, -1)
    node_of[ops] = np.arange(len(ops))

    in_parts_cost = parts_ns[ops] / split.parts
    whole_cost = whole_ns[ops] * min(1.0, 1e9 * whole_s / max(1.0, whole_ns.sum()))
    # Where only one end of an edge is split, each device takes its share of two launches and of the bytes, over the
    # fastest link between the devices.
    times = problem.compute_ns[:, columns]
    launch_ns = float(times[times > 0].min()) if (times > 0).any() else 0.0
    links = [link for link in whole.cluster.links if link.source in columns and link.target in columns]
    ns_per_byte = min((1e9 / link.bytes_per_s for link in links), default=0.0)
    graph = whole.op_graph
    border_ns = (2 * launch_ns + graph.edge_bytes * ns_per_byte) / split.parts
    ends = node_of[graph.edges]
    between = (ends >= 0).all(axis=1)
    is_split, least_ns = _minimum_cut(whole_cost, in_parts_cost, ends[between], border_ns[between])
    if least_ns > (1 - _LEAST_GAIN) * in_parts_cost.sum() or not is_split.any():
        return frozenset()
    return frozenset(whole.op_names[op] for op in ops[~is_split])


def _minimum_cut(
    first_ns: np.ndarray, second_ns: np.ndarray, ends: np.ndarray, border_ns: np.ndarray
) -> tuple[np.ndarray, int]:
    """The cheapest choice of one of two for each of N nodes: [N] bool, the second is chosen; and the sum of costs.

    ``first_ns`` and ``second_ns`` [N] are the costs of the choices, and an edge between nodes [E, 2] that choose
    differently costs ``border_ns`` [E]; all in nanoseconds, not negative, rounded to whole ones.
    """
    to_sink, to_node, border = (np.rint(ns).astype(np.int64) for ns in (first_ns, second_ns, border_ns))
    nodes, source, sink = np.arange(len(to_sink)), len(to_sink), len(to_sink) + 1
    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(np.full(source, source), nodes, to_node)  # cut where the second is chosen
    flow.add_arcs_with_capacity(nodes, np.full(source, sink), to_sink)
    for tails, heads in (ends.T, ends.T[::-1]):
        flow.add_arcs_with_capacity(tails, heads, border)
    if flow.solve(source, sink) != flow.OPTIMAL:
        raise AssertionError("a cut of finite costs has a minimum")
    is_second = np.ones(source + 2, bool)
    is_second[flow.get_source_side_min_cut()] = False
    return is_second[:source], flow.optimal_flow()


def handed_to_hosts(problem: Problem, device_of_unit: np.ndarray) -> np.ndarray:
    """Plans whose hosts compute what a minimum cut takes off accelerators.

    A small kernel takes an accelerator longer than an idle host; single moves find such units piece by piece. A cut is
    one expansion move (Boykov, Veksler & Zabih 2001): each unit stays, or goes to the host. The host's time and the new
    transfers count at a few prices; the simulator decides which is right.

    Returns:
      [K, U] int32, legal plans made of a legal one; none where no host is beside accelerators.
    """
    cluster, graph = problem.cluster, problem.op_graph
    ends = problem.unit_of_op[graph.edges]
    unit_ns = np.zeros(problem.allowed.shape)
    np.add.at(unit_ns, problem.unit_of_op, problem.compute_ns / cluster.streams())
    accelerators, rows = cluster.accelerators(), []
    for host in np.flatnonzero(~accelerators):
        is_there, link = device_of_unit == host, (int(accelerators.argmax()), host)
        ns_per_byte = 1e9 / cluster.link_bytes_per_s()[link]
        crosses_ns = cluster.link_latency_ns()[link] + graph.edge_bytes * ns_per_byte
        never_ns = unit_ns.sum() + crosses_ns.sum()
        stays_ns = np.where(is_there, never_ns, unit_ns[np.arange(len(unit_ns)), device_of_unit])
        can_go = problem.allowed[:, host]
        for price in _HOST_PRICES:
            goes_ns = np.where(is_there, 0, np.where(can_go, price * unit_ns[:, host], never_ns))
            for transfer_price in _TRANSFER_PRICES:
                goes, _ = _minimum_cut(stays_ns, goes_ns, ends, transfer_price * crosses_ns)
                rows.append(np.where(goes, host, device_of_unit))
    return np.array(rows, np.int32).reshape(len(rows), problem.num_units)
