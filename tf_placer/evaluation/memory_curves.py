"""Memory of each device over a step, by the rules of the simulator (docs/architecture.md, section 5)."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.evaluation.step_spans import StepSpans


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryCurve:
    """What one device holds: ``num_bytes[i]`` from ``times_ns[i]`` until the next time.

    Attributes:
      times_ns: [P] int64, ascending, from 0.
      num_bytes: [P] int64, each different from the one before.
    """

    times_ns: np.ndarray
    num_bytes: np.ndarray

    @property
    def peak_bytes(self) -> int:
        return int(self.num_bytes.max())


def memory_curves(spans: StepSpans) -> tuple[MemoryCurve, ...]:
    """The curve of each of the D devices; what is freed at a moment makes room for what is allocated at it.

    Units' variables stay. An op's output lives from the op's start until the op, its consumers on that device and its
    transfers have ended; a received copy from the start of its transfer until its consumers there have ended. What
    shares the memory of an input takes none where it is made, but keeps that input's as long as a consumer would.
    """
    problem = spans.problem
    producer = problem.tensor_producer
    here = spans.device_of_op[producer]  # [T]
    # [T, D] when the last consumer of each tensor on each device ends.
    last_use_ns = np.zeros((len(producer), problem.num_devices), np.int64)
    tensor = problem.op_graph.tensor  # [E]
    np.maximum.at(
        last_use_ns, (tensor, spans.device_of_op[problem.consumer_op]), spans.end_ns[problem.consumer_op]
    )
    tensors = np.arange(len(producer))
    np.maximum.at(last_use_ns, (tensors, here), spans.end_ns[producer])
    np.maximum.at(last_use_ns, (spans.transfer_tensor, here[spans.transfer_tensor]), spans.transfer_end_ns)
    for sharing in np.flatnonzero(problem.alias_of_tensor >= 0)[
        ::-1
    ]:  # who shares comes behind what it shares
        shared, device = problem.alias_of_tensor[sharing], here[sharing]
        last_use_ns[shared, device] = max(last_use_ns[shared, device], last_use_ns[sharing, device])
    freed_ns = last_use_ns[tensors, here]
    copies_freed_ns = last_use_ns[spans.transfer_tensor, spans.transfer_target]

    num_bytes = np.concatenate([problem.own_bytes(), spans.transfer_bytes])
    device = np.concatenate([here, spans.transfer_target])
    born_ns = np.concatenate([spans.start_ns[producer], spans.transfer_start_ns])
    dead_ns = np.concatenate([freed_ns, copies_freed_ns])
    return tuple(
        _curve(int(resident), num_bytes[there], born_ns[there], dead_ns[there])
        for resident, there in zip(
            _resident_bytes(spans), _by_device(device, problem.num_devices), strict=True
        )
    )


def _by_device(device: np.ndarray, num_devices: int) -> list[np.ndarray]:
    return [np.flatnonzero(device == d) for d in range(num_devices)]


def _resident_bytes(spans: StepSpans) -> np.ndarray:
    """[D] int64."""
    problem = spans.problem
    device_of_unit = np.zeros(problem.num_units, np.int32)
    device_of_unit[problem.unit_of_op] = spans.device_of_op
    resident = np.zeros(problem.num_devices, np.int64)
    np.add.at(resident, device_of_unit, problem.resident_bytes)
    return resident


def _curve(resident: int, num_bytes: np.ndarray, born_ns: np.ndarray, dead_ns: np.ndarray) -> MemoryCurve:
    """Changes of one moment are one change."""
    times_ns, position = np.unique(np.concatenate([[0], born_ns, dead_ns]), return_inverse=True)
    change = np.zeros(len(times_ns), np.int64)
    np.add.at(change, position, np.concatenate([[resident], num_bytes, -num_bytes]))
    changes = change != 0
    changes[0] = True
    return MemoryCurve(times_ns[changes], np.cumsum(change)[changes])
