"""A problem as rules of list scheduling see it: nothing in it has a unit, a name or a size."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.groups import Groups
from tf_placer.ops.list_policy import ListInputs
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem

# Of what ``list_inputs`` makes: rules that were taught with another one say something else.
INPUTS_VERSION = 1

_BINS = 32  # T
_FAST = 1.5  # a device is fast that takes at most so many times as long as the fastest for all of the work
_SLOWEST = 4.0  # of slowness
_MOST = 2.0  # of what a rule's coefficients depend on, either way
_LITTLE = 1e-3


def list_inputs(problem: Problem, nodes: Groups) -> ListInputs:
    """Describes a problem of D devices as V nodes.

    Work is a share of what a fast device has to do where the work of a step is split evenly, messages of what a step
    takes at least: the longest chain, or all work split evenly.
    """
    graph, legal = problem.op_graph, nodes.legal
    node_of_op = nodes.group_of_unit[problem.unit_of_op]
    work_ns = nodes.compute_ns()
    alone_ns = np.maximum(work_ns.sum(axis=0), 1.0)  # [D] all of it
    fast = alone_ns <= _FAST * alone_ns.min()
    share_ns = alone_ns.min() / fast.sum()
    chain_ns = float(max((graph.top_level_ns + graph.bottom_level_ns).max(initial=0), 1))
    step_ns = max(chain_ns, share_ns)
    least_ns = np.maximum(np.where(legal, work_ns, np.inf).min(axis=1), 1.0)
    need_bytes = nodes.sums(problem.resident_bytes + held_bytes(problem))
    capacity_bytes = np.maximum(problem.cluster.capacity_bytes(), 1)
    link_fixed, link_per_byte = _links(problem, step_ns)
    offset, neighbor, neighbor_bytes = _neighbors(nodes)
    own_bytes = np.add.reduceat(np.append(neighbor_bytes, 0.0), offset[:-1]) * (np.diff(offset) > 0)
    slack = _slack(problem, nodes, node_of_op, chain_ns)
    op_ns = np.bincount(node_of_op, graph.op_ns, nodes.count)
    log_work = _within(np.log(np.maximum(op_ns * nodes.count / max(op_ns.sum(), 1.0), _LITTLE)) / 3)
    return ListInputs(
        legal=legal,
        work=work_ns / share_ns,
        slowness=np.clip(np.log(np.maximum(work_ns, 1.0) / least_ns[:, np.newaxis]), 0.0, _SLOWEST),
        memory=need_bytes[:, np.newaxis] / capacity_bytes,
        window=_windows(problem, nodes, node_of_op, chain_ns) * np.sqrt(_BINS * share_ns / chain_ns),
        context=_context(
            nodes,
            slack,
            log_work,
            own_bytes,
            least_ns / step_ns,
            link_fixed,
            link_per_byte,
            parallel=chain_ns / share_ns,
            tightness=float(need_bytes.sum() / capacity_bytes[fast].sum()),
        ),
        order_features=np.stack(
            [
                np.arange(nodes.count) / max(nodes.count, 1),
                log_work,
                slack,
                np.log1p(own_bytes / max(own_bytes.mean(), 1.0)),
            ],
            axis=1,
        ),
        neighbor_offset=offset.astype(np.int32),
        neighbor=neighbor.astype(np.int32),
        neighbor_bytes=neighbor_bytes,
        link_fixed=link_fixed,
        link_per_byte=link_per_byte,
    )


def _context(
    nodes: Groups,
    slack: np.ndarray,
    log_work: np.ndarray,
    own_bytes: np.ndarray,
    work: np.ndarray,
    link_fixed: np.ndarray,
    link_per_byte: np.ndarray,
    parallel: float,
    tightness: float,
) -> np.ndarray:
    """[V, C] as ``tf_placer.ops.list_policy.CONTEXT`` has it."""
    fixed, per_byte = _mean_link(link_fixed), _mean_link(link_per_byte)
    traffic = nodes.edge_bytes.sum() * per_byte + len(nodes.edges) * fixed
    own = (own_bytes * per_byte + fixed) / (work + 0.05 / nodes.count)
    of_problem = [np.log(traffic + _LITTLE) / 3, np.log(parallel) / 2, np.log(tightness + _LITTLE) / 3]
    problem_traffic, parallel, tightness = _within(np.array(of_problem))
    ones = np.ones(nodes.count)
    return np.stack(
        [
            ones,
            2 * slack,
            log_work,
            problem_traffic * ones,
            parallel * ones,
            _within(np.log(own + _LITTLE) / 4),
            0 * ones,
            tightness * ones,
        ],
        axis=1,
    )


def _slack(problem: Problem, nodes: Groups, node_of_op: np.ndarray, chain_ns: float) -> np.ndarray:
    """[V] in [0, 1]: for how much of the step a node's work could wait, weighted by the time of its ops."""
    graph = problem.op_graph
    slack = 1 - (graph.top_level_ns + graph.bottom_level_ns) / chain_ns
    weight = graph.op_ns + _LITTLE
    of_node: np.ndarray = np.bincount(node_of_op, weight * slack, nodes.count) / np.bincount(
        node_of_op, weight, nodes.count
    )
    return of_node


def _windows(problem: Problem, nodes: Groups, node_of_op: np.ndarray, chain_ns: float) -> np.ndarray:
    """[V, T] shares of a node's work: half of it as early as can be, half as late."""
    graph = problem.op_graph
    half_ns = graph.op_ns / 2
    windows = np.zeros((nodes.count, _BINS))
    for middle_ns in (graph.top_level_ns + half_ns, chain_ns - graph.bottom_level_ns + half_ns):
        place = np.clip((middle_ns / chain_ns * _BINS).astype(int), 0, _BINS - 1)
        np.add.at(windows, (node_of_op, place), half_ns)
    return windows / np.maximum(windows.sum(axis=1, keepdims=True), 1.0)


def _links(problem: Problem, step_ns: float) -> tuple[np.ndarray, np.ndarray]:
    """[D, D] what a message takes, and a byte of it, over the time of the step; 0 on the diagonal."""
    transfer = problem.op_graph.transfer
    elsewhere = ~np.eye(problem.num_devices, dtype=bool)
    return (
        np.where(elsewhere, transfer.fixed_ns, 0.0) / step_ns,
        np.where(elsewhere, transfer.ns_per_byte, 0.0) / step_ns,
    )


def _mean_link(matrix: np.ndarray) -> float:
    """Of all links; 0 where there is one device."""
    links = len(matrix) * (len(matrix) - 1)
    return float(matrix.sum() / links) if links else 0.0


def _neighbors(nodes: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets [V + 1], neighbors [E] and bytes [E]: every edge from both of its ends, the most bytes first."""
    here = nodes.edges.T.reshape(-1)
    there = nodes.edges[:, ::-1].T.reshape(-1)
    amount = np.tile(nodes.edge_bytes, 2).astype(np.float64)
    order = np.lexsort((there, -amount, here))
    offset = np.concatenate([[0], np.cumsum(np.bincount(here, minlength=nodes.count))])
    return offset, there[order], amount[order]


def _within(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -_MOST, _MOST)
