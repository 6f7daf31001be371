"""Ops that are faster whole than in parts: a minimum cut between what is split and what is not.

A kernel of a thin product or of a small tensor takes nearly as long for a part of the batch as for all of it: copies on
two devices then gain nothing over one op on either, and launches are paid twice. So a recurrent layer may stay whole,
and be placed like any program, beside a wide output layer that is split.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ortools.graph.python import max_flow

from tf_placer.problem.problem import Problem
from tf_placer.transform.split.split_batch import SplitProgram

_LEAST_GAIN = 0.03
"""Share of the step, by the estimate of the cut, below which all stays in parts: another program has to be built."""


def faster_whole(
    split: SplitProgram, problem: Problem, whole: Problem, devices: Sequence[int], whole_s: float
) -> frozenset[str]:
    """The ops of a program that are better kept whole when its batch is put in parts.

    An op in parts is taken to cost the time of its copies, evenly shared by the devices; one that stays whole the share
    of its time that placing the whole program has left of it, ``whole_s`` over the time of all ops. Between an op that
    is split and one that is not lie a slice or a concatenation and a transfer, for each edge. The cheapest choice by
    these estimates is a minimum cut; what it is worth is found by a search in the program that it gives. Critical paths
    are not seen, nor what weights cost to send.

    Args:
      split: the program with all in parts that can be.
      problem: it on a cluster.
      whole: the program that was split, on the cluster.
      devices: positions of the devices that compute parts.
      whole_s: step of the best placement of ``whole``.

    Returns:
      Names of ops of ``whole``; none where the estimate gains less than ``_LEAST_GAIN``, or would keep all whole.
    """
    columns = list(devices)
    whole_ns = whole.compute_ns[:, columns].mean(axis=1)
    position = {name: op for op, name in enumerate(whole.op_names)}
    made_of = np.array([position[split.origin_of[name]] for name in problem.op_names])
    parts_ns = np.bincount(made_of, problem.compute_ns[:, columns].mean(axis=1), minlength=whole.num_ops)
    ops = np.array([position[name] for name in split.split_ops], int)
    node_of = np.full(whole.num_ops, -1)
    node_of[ops] = np.arange(len(ops))

    in_parts_cost = parts_ns[ops] / split.parts
    whole_cost = whole_ns[ops] * min(1.0, 1e9 * whole_s / max(1.0, whole_ns.sum()))
    source, sink = len(ops), len(ops) + 1
    flow = max_flow.SimpleMaxFlow()
    for node, (in_parts, kept) in enumerate(zip(in_parts_cost.tolist(), whole_cost.tolist(), strict=True)):
        flow.add_arc_with_capacity(source, node, round(in_parts))  # cut where the op is split
        flow.add_arc_with_capacity(node, sink, round(kept))
    for producer, consumer, cost_ns in _borders(problem, whole, columns, split.parts):
        here, there = int(node_of[producer]), int(node_of[consumer])
        if here >= 0 and there >= 0:
            flow.add_arc_with_capacity(here, there, cost_ns)
            flow.add_arc_with_capacity(there, here, cost_ns)
    if flow.solve(source, sink) != flow.OPTIMAL:
        raise AssertionError("a cut of finite costs has a minimum")
    if flow.optimal_flow() > (1 - _LEAST_GAIN) * round(in_parts_cost.sum()):
        return frozenset()
    kept_nodes = [node for node in flow.get_source_side_min_cut() if node < len(ops)]
    if len(kept_nodes) == len(ops):
        return frozenset()
    return frozenset(whole.op_names[ops[node]] for node in kept_nodes)


def _borders(problem: Problem, whole: Problem, columns: list[int], parts: int) -> list[tuple[int, int, int]]:
    """Producer, consumer and nanoseconds of each edge of the whole, if one of its ends is split and the other is not.

    Each device takes its share of two launches and of the bytes, over the fastest link between the devices.
    """
    times = problem.compute_ns[:, columns]
    launch_ns = float(times[times > 0].min()) if (times > 0).any() else 0.0
    among = [link for link in whole.cluster.links if link.source in columns and link.target in columns]
    ns_per_byte = min((1e9 / link.bytes_per_s for link in among), default=0.0)
    graph = whole.op_graph
    cost_ns = np.rint((2 * launch_ns + graph.edge_bytes * ns_per_byte) / parts).astype(np.int64)
    return list(zip(graph.producer.tolist(), graph.consumer.tolist(), cost_ns.tolist(), strict=True))
