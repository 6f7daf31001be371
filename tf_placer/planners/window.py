"""Ops of a program with all that placing them depends on: all of a small program, or a stretch of a step."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """N' ops of U' units whose devices are open; what is outside stays where and when it is.

    Attributes:
      problem: what it is of.
      units: [U'] the units.
      ops: [N'] the ops, ascending.
      unit: [N'] of each op, a position in ``units``.
      release_ns: [N', D] when what the op reads from outside can be on the device.
      tail_ns: [N', D] what must follow the op outside.
    """

    problem: Problem
    units: np.ndarray
    ops: np.ndarray
    unit: np.ndarray
    release_ns: np.ndarray
    tail_ns: np.ndarray

    def description(self) -> dict[str, Any]:
        """Plain lists, for the process of the solver: of each tensor also what it takes over each link."""
        problem, cluster = self.problem, self.problem.cluster
        position = {op: index for index, op in enumerate(self.ops.tolist())}
        tensors = []
        for tensor, readers in enumerate(problem.op_graph.readers()):
            producer = position.get(int(problem.tensor_producer[tensor]))
            inside = [position[op] for op in readers if op in position]
            if producer is not None and inside:
                tensors.append((producer, inside, self._links(int(problem.tensor_bytes[tensor]))))
        return {
            "allowed": problem.allowed[self.units].tolist(),
            "resident": problem.resident_bytes[self.units].tolist(),
            "capacity": cluster.capacity_bytes().tolist(),
            "streams": cluster.streams().tolist(),
            "join": cluster.join_ns().tolist(),
            "unit": self.unit.tolist(),
            "cost": problem.compute_ns[self.ops].tolist(),
            "release": self.release_ns.tolist(),
            "tail": self.tail_ns.tolist(),
            "tensors": tensors,
        }

    def _links(self, num_bytes: int) -> list[tuple[int, ...]]:
        """(source, target, channel, ns to send, ns to cross, ns to receive) of each link, as the simulator rounds."""
        cluster = self.problem.cluster
        channel = cluster.channel_of_link()
        return [
            (
                link.source,
                link.target,
                int(channel[link.source, link.target]),
                link.send_ns + -(-num_bytes * link.send_ps_per_byte // 1000),
                link.latency_ns + -(-num_bytes * 10**9 // max(1, round(link.bytes_per_s))),
                link.receive_ns + -(-num_bytes * link.receive_ps_per_byte // 1000),
            )
            for link in cluster.links
        ]


def whole(problem: Problem) -> Window:
    """All of it: nothing is outside."""
    nothing = np.zeros((problem.num_ops, problem.num_devices), np.int64)
    ops = np.arange(problem.num_ops)
    return Window(problem, np.arange(problem.num_units), ops, problem.unit_of_op, nothing, nothing)


def stretch(
    problem: Problem, row: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, first: int, size: int
) -> Window:
    """The units of ``size`` ops that start one after the other in the schedule of a placement.

    Args:
      problem: what is placed.
      row: [U] the placement.
      start_ns, end_ns: [N] its schedule.
      first: how many ops start before them.
      size: number of ops.
    """
    ops = np.sort(np.argsort(start_ns, kind="stable")[first : first + size])
    units, unit = np.unique(problem.unit_of_op[ops], return_inverse=True)
    graph, inside = problem.op_graph, np.zeros(problem.num_ops, bool)
    inside[ops] = True
    position = np.cumsum(inside) - 1
    shape, devices = (len(ops), problem.num_devices), np.arange(problem.num_devices)
    release, tail = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    device = row[problem.unit_of_op]
    enters = np.flatnonzero(~inside[graph.producer] & inside[graph.consumer])
    leaves = np.flatnonzero(inside[graph.producer] & ~inside[graph.consumer])
    for edges, into, here, there in (
        (enters, release, graph.consumer, graph.producer),
        (leaves, tail, graph.producer, graph.consumer),
    ):
        at, other = here[edges], there[edges]
        ends = (device[other][:, np.newaxis], devices)
        source, target = ends if into is release else ends[::-1]
        link_ns = graph.transfer.between_ns(graph.edge_bytes[edges][:, np.newaxis], source, target)
        link_ns[problem.unit_of_op[at] == problem.unit_of_op[other]] = 0
        known_ns = end_ns if into is release else graph.bottom_level_ns
        np.maximum.at(into, position[at], known_ns[other][:, np.newaxis] + link_ns.astype(np.int64))
    # Streams are taken by what came before.
    release = np.maximum(release, start_ns[ops].min())
    return Window(problem, units, ops, unit, release, tail)
