"""Arrays of the simulator, small enough to be worked out by hand."""

import numpy as np


def arrays(num_ops, tensors, compute_ns, num_devices=2, **changes):
    """Arrays where every op is a unit; a link takes 10 ns and 1 ns a byte, each on a channel of its own.

    Args:
      num_ops: N.
      tensors: (producer, bytes, consumers), by producer.
      compute_ns: [N], the same on every device.
      num_devices: D.
      **changes: arrays to use instead.
    """
    square = (num_devices, num_devices)
    channel = np.arange(num_devices**2).reshape(square)
    return {
        "unit_of_op": np.arange(num_ops),
        "compute_ns": np.repeat(np.array(compute_ns)[:, None], num_devices, axis=1),
        "priority": np.zeros(num_ops, int),
        "tensor_producer": np.array([producer for producer, _, _ in tensors], int),
        "tensor_bytes": np.array([num_bytes for _, num_bytes, _ in tensors], int),
        "consumer_offset": np.cumsum([0] + [len(consumers) for _, _, consumers in tensors]),
        "consumer_op": np.array([op for _, _, consumers in tensors for op in consumers], int),
        "resident_bytes": np.zeros(num_ops, int),
        "streams": np.ones(num_devices, int),
        "link_latency_ns": np.full(square, 10),
        "link_bytes_per_s": np.full(square, 10**9),
        "channel_of_link": np.where(np.eye(num_devices, dtype=bool), -1, channel),
    } | changes


CHAIN = arrays(2, [(0, 5, [1])], [100, 50])
