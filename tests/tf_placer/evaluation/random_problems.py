"""The simulator's random arrays as problems."""

import numpy as np

from tests.tf_placer.ops.random_inputs import CHORES, random_inputs
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device, Link, full_device_name
from tf_placer.problem.problem import Problem


def random_problem(rng: np.random.Generator) -> Problem:
    """One that the simulator takes as it takes ``random_inputs`` of the same generator."""
    inputs = random_inputs(rng)
    devices = tuple(
        Device(
            name=full_device_name(f"GPU:{d}"),
            type="GPU",
            model="toy",
            memory_bytes=10**12,
            streams=int(inputs.streams[d]),
            peak_flops=1e12,
            memory_bytes_per_s=1e11,
            launch_ns=0,
            newest_first=bool(inputs.newest_first[d]),
            join_ns=int(inputs.join_ns[d]),
            dispatch_ns=int(inputs.dispatch_ns[d]),
        )
        for d in range(inputs.num_devices)
    )
    links = tuple(
        Link(
            a,
            b,
            int(inputs.link_latency_ns[a, b]),
            float(inputs.link_bytes_per_s[a, b]),
            f"channel {inputs.channel_of_link[a, b]}",
            tensor_ns=int(inputs.link_tensor_ns[a, b]),
            **{name.removeprefix("link_"): int(getattr(inputs, name)[a, b]) for name in CHORES},
        )
        for a in range(inputs.num_devices)
        for b in range(inputs.num_devices)
        if a != b
    )
    return Problem(
        name="random",
        cluster=Cluster("random", devices, links),
        unit_of_op=inputs.unit_of_op,
        compute_ns=inputs.compute_ns,
        tensor_producer=inputs.tensor_producer,
        tensor_bytes=inputs.tensor_bytes,
        alias_of_tensor=inputs.alias_of_tensor,
        consumer_offset=inputs.consumer_offset,
        consumer_op=inputs.consumer_op,
        resident_bytes=inputs.resident_bytes,
        allowed=np.ones((inputs.num_units, inputs.num_devices), bool),
        priority=inputs.priority,
        op_names=tuple(f"op{n}" for n in range(inputs.num_ops)),
        op_types=("",) * inputs.num_ops,
        output_shapes=((),) * inputs.num_ops,
        fingerprint="random",
    )
