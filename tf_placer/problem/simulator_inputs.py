"""The arrays of a problem as the simulator reads them."""

from __future__ import annotations

from tf_placer.ops.simulator import SimulatorInputs
from tf_placer.problem.problem import Problem


def simulator_inputs(problem: Problem) -> SimulatorInputs:
    """What the simulator's op takes of a problem and its cluster."""
    cluster = problem.cluster
    return SimulatorInputs(
        unit_of_op=problem.unit_of_op,
        compute_ns=problem.compute_ns,
        priority=problem.priority,
        tensor_producer=problem.tensor_producer,
        tensor_bytes=problem.tensor_bytes,
        alias_of_tensor=problem.alias_of_tensor,
        consumer_offset=problem.consumer_offset,
        consumer_op=problem.consumer_op,
        resident_bytes=problem.resident_bytes,
        streams=cluster.streams(),
        newest_first=cluster.newest_first(),
        join_ns=cluster.join_ns(),
        dispatch_ns=cluster.dispatch_ns(),
        link_latency_ns=cluster.link_latency_ns(),
        link_bytes_per_s=cluster.link_bytes_per_s(),
        channel_of_link=cluster.channel_of_link(),
        link_tensor_ns=cluster.link_tensor_ns(),
        **cluster.link_chores(),
    )
