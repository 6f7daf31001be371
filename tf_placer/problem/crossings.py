"""The tensors that a placement sends from device to device."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class Crossing:
    """One tensor on its way to one device.

    Attributes:
      op: position of its producer.
      source, target: devices, as positions.
      num_bytes: of the tensor.
    """

    op: int
    source: int
    target: int
    num_bytes: int


def crossings(problem: Problem, device_of_unit: np.ndarray) -> list[Crossing]:
    """All transfers of one step, the largest first; a tensor crosses to a device once however many read it there.

    Args:
      problem: the graph.
      device_of_unit: [U].
    """
    device = device_of_unit[problem.unit_of_op]
    graph = problem.op_graph
    target = device[graph.consumer]
    crossing = device[graph.producer] != target
    pairs = np.unique(np.stack([graph.tensor[crossing], target[crossing]], axis=1), axis=0)
    tensors = pairs[:, 0]
    order = np.argsort(-problem.tensor_bytes[tensors], kind="stable")
    return [
        Crossing(
            int(problem.tensor_producer[t]),
            int(device[problem.tensor_producer[t]]),
            int(to),
            int(problem.tensor_bytes[t]),
        )
        for t, to in pairs[order]
    ]
