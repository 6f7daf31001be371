"""Which reader each op should have beside it: the linear program of SCT scheduling."""

from __future__ import annotations

import dataclasses
import time
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse

from tf_placer.problem.problem import Problem

_NEAR = 0.5  # what is below it is near, rounded


class FavoriteChildren(NamedTuple):
    """Who is whose favorite; each op has at most one favorite and is that of at most one.

    Attributes:
      child: [N] int64, the favorite reader of each op, -1 for none.
      transfer_ns: [N] float64, what crossing to it takes in the mean over links.
      left_out: windows of the graph whose program did not end in time: nobody there has a favorite.
    """

    child: np.ndarray
    transfer_ns: np.ndarray
    left_out: int


@dataclasses.dataclass(frozen=True)
class _Window:
    """Ops in a row, and what is read between them.

    Attributes:
      first, last: ops from first to before last.
      source, target: [E] ops, an edge for each pair.
      transfer_ns: [E] what crossing takes; 0 where both are in one unit and so never apart.
    """

    first: int
    last: int
    source: np.ndarray
    target: np.ndarray
    transfer_ns: np.ndarray


def favorite_children(problem: Problem, window_edges: int, limit_s: float) -> FavoriteChildren:
    """Solves the relaxed program of Hanen & Munier (1995), as Baechi does (Jeon et al. 2020), with HiGHS.

    Every op takes its time on its fastest device, as if there were a device for each op. Of op i, with start s_i and
    time p_i, the edge to j takes c_ij unless the two are near (x_ij = 0):

        min w    s_i + p_i <= w    s_i + p_i + c_ij x_ij <= s_j    0 <= x_ij <= 1
        sum over readers j of x_ij >= readers - 1    sum over producers i of x_ij >= producers - 1

    The relaxed x below one half are rounded to 0. A larger graph is cut in windows, ops in a row with at most so many
    edges: what crosses a border has no favorite, and each window has a step of its own to shorten.

    Args:
      problem: the graph; its ops are in topological order.
      window_edges: at most so many edges in a program, at least 1; an op with more is a window by itself and the next.
      limit_s: for all programs together. A program that ends late counts no more, so where this is reached favorites
        depend on the machine.
    """
    child = np.full(problem.num_ops, -1, np.int64)
    transfer_ns = np.zeros(problem.num_ops)
    left_out, deadline = 0, time.monotonic() + limit_s
    costs = problem.fastest_ns().astype(np.float64)
    for window in _windows(problem, window_edges):
        apart = _solved(window, costs, deadline - time.monotonic())
        if apart is None:
            left_out += 1
            continue
        near = (apart < _NEAR) & (window.transfer_ns > 0)
        child[window.source[near]] = window.target[near]
        transfer_ns[window.source[near]] = window.transfer_ns[near]
    return FavoriteChildren(child, transfer_ns, left_out)


def _windows(problem: Problem, window_edges: int) -> list[_Window]:
    """The graph cut into runs of ops; those without an edge that could cross are left out."""
    graph, unit = problem.op_graph, problem.unit_of_op
    keys, position = np.unique(
        graph.consumer.astype(np.int64) * problem.num_ops + graph.producer, return_inverse=True
    )
    longest_ns = np.zeros(len(keys))
    np.maximum.at(longest_ns, position, graph.mean_transfer_ns[graph.tensor])
    source, target = keys % max(problem.num_ops, 1), keys // max(problem.num_ops, 1)
    longest_ns[unit[source] == unit[target]] = 0
    # Edges are in the order of their readers, so that a window's are those of its ops.
    ends = np.searchsorted(target, np.arange(problem.num_ops + 1)).tolist()
    windows, first = [], 0
    while first < problem.num_ops:
        last = first + 1
        while last < problem.num_ops and ends[last + 1] - ends[first] <= window_edges:
            last += 1
        rows = np.arange(ends[first], ends[last])
        rows = rows[source[rows] >= first]
        if (longest_ns[rows] > 0).any():
            windows.append(_Window(first, last, source[rows], target[rows], longest_ns[rows]))
        first = last
    return windows


def _solved(window: _Window, costs: np.ndarray, limit_s: float) -> np.ndarray | None:
    """[E] how far apart the ends of each edge are, from 0 to 1; None where that was not found in time."""
    if limit_s <= 0:
        return None
    ops, edges = window.last - window.first, len(window.source)
    source, target = window.source - window.first, window.target - window.first
    scale = max(float(costs[window.first : window.last].max()), float(window.transfer_ns.max()))
    time_of_op = costs[window.first : window.last] / scale
    move = window.transfer_ns / scale
    row, one = np.arange(edges), np.ones(edges)
    # Columns: starts, then distances, then the end of the step.
    starts = scipy.sparse.csr_array((one, (row, source)), (edges, ops))
    starts -= scipy.sparse.csr_array((one, (row, target)), (edges, ops))
    nothing = scipy.sparse.csr_array((edges, 1))
    before = scipy.sparse.hstack([starts, scipy.sparse.diags_array(move), nothing])
    end = scipy.sparse.hstack(
        [scipy.sparse.eye_array(ops), scipy.sparse.csr_array((ops, edges)), np.full((ops, 1), -1.0)]
    )
    can_cross = move > 0
    blocks, limits = [before, end], [-time_of_op[source], -time_of_op]
    for who in (source, target):
        people, group = np.unique(who[can_cross], return_inverse=True)
        members = np.flatnonzero(can_cross)
        sums = scipy.sparse.csr_array((-np.ones(len(members)), (group, members)), (len(people), edges))
        blocks.append(
            scipy.sparse.hstack(
                [scipy.sparse.csr_array((len(people), ops)), sums, scipy.sparse.csr_array((len(people), 1))]
            )
        )
        limits.append(1.0 - np.bincount(group))
    result = scipy.optimize.linprog(
        np.append(np.zeros(ops + edges), 1.0),
        A_ub=scipy.sparse.vstack(blocks).tocsr(),
        b_ub=np.concatenate(limits),
        bounds=np.array([(0, np.inf)] * ops + [(0, 1)] * edges + [(0, np.inf)]),
        method="highs",
        options={"time_limit": limit_s},
    )
    return result.x[ops : ops + edges] if result.status == 0 else None
