"""Memory of a program on its devices: held within the described limits, and measured by trace."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import tensorflow as tf

from colocation.op_facts import data_inputs
from tf_placer.runtime.graph_program import GraphProgram
from tf_placer.workers.worker_memory import WorkerMemory

# TensorFlow's allocator for oneDNN leaves smaller tensors to malloc and does not count them.
SMALL_VALUE_BYTES = 256 << 10


class MemoryExceeded(RuntimeError):
    """A program took more memory than a device is described to have.

    Attributes:
      peak_bytes: device name -> what it took until it was ended, of the devices that can be told.
    """

    def __init__(self, message: str, peak_bytes: dict[str, int]) -> None:
        super().__init__(message)
        self.peak_bytes = peak_bytes


@dataclasses.dataclass
class MemoryWatch:
    """The memory of one program on live workers, from when it is loaded until its last step.

        watch = MemoryWatch(workers.memories)
        watch.settle()  # load the program ...
        watch.begin(program)  # run it, and now and then
        watch.check()

    Attributes:
      memories: of the workers that run now, not of their successors: the thread of a call that was given up may
        come back late.
      is_on: whether ``check`` looks: what loading takes does not count.
    """

    memories: tuple[WorkerMemory, ...]
    is_on: bool = False

    def settle(self) -> None:
        """Settles the memory of every worker before the program is loaded."""
        for memory in self.memories:
            memory.settle()

    def begin(self, program: GraphProgram) -> None:
        """Once it is loaded."""
        small = program.resident_bytes(below=SMALL_VALUE_BYTES)
        for memory in self.memories:
            memory.begin(small.get(memory.device.name, 0))
        self.is_on = True

    def check(self) -> None:
        """Raises MemoryExceeded when a device is over its memory."""
        if not self.is_on:
            return
        for memory in self.memories:
            excess = memory.excess()
            if excess is not None:
                raise MemoryExceeded(excess, self.peak_bytes())

    @property
    def is_mute(self) -> bool:
        """True if a worker left a question about its memory unanswered: it hangs, and so would the next program."""
        return any(memory.is_mute for memory in self.memories)

    def peak_bytes(self) -> dict[str, int]:
        """Device name -> most bytes since ``begin`` (``WorkerMemory``), of the devices for which that is known."""
        told = {memory.device.name: memory.peak_bytes() for memory in self.memories}
        return {name: peak for name, peak in told.items() if peak is not None}


# Peak bytes of tensors of a step on each device, by the runtime's own trace.

_RECEIVED = "RecvTensor"


def readers_of(program: GraphProgram) -> dict[str, list[str]]:
    """Name of an op -> names of the ops that read an output of it."""
    readers: dict[str, list[str]] = {}
    for node in program.graph_def.node:
        for text in data_inputs(node):
            readers.setdefault(text.partition(":")[0], []).append(node.name)
    return readers


def traced_peak_bytes(
    trace: tf.compat.v1.RunMetadata, readers: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """Device -> most bytes that the step's tensors hold at once, variables and inputs left out.

    TensorFlow records when its allocators hand out and take back each buffer of a traced step: outputs, and what
    kernels need while they run. What lived before the step is not among them, nor here what takes its place: a
    variable's new value is written to a buffer that is never given back, and the old one goes without a record. Of a
    copy that another worker sent only its arrival is recorded; it lives until its last reader there has ended. Of one
    microsecond, what is given back comes first.

    Args:
      trace: metadata of a step that was run with FULL_TRACE.
      readers: of each op, by name (``readers_of``).
    """
    records: dict[str, list[tuple[int, int]]] = {}
    ends: dict[tuple[str, str], int] = {}
    received: list[tuple[str, Any]] = []
    for device in trace.step_stats.dev_stats:
        held = records.setdefault(device.device, [])
        for node in device.node_stats:
            if node.node_name == _RECEIVED:
                received.append((device.device, node))
            else:
                held += _buffers(node)
                ends[device.device, node.node_name] = _end_micros(node)
    for device, node in received:
        records[device] += _copy(node, [ends.get((device, op), 0) for op in readers.get(_sent_by(node), ())])
    return {device: _most(of_device) for device, of_device in records.items()}


def _buffers(node: Any) -> Iterator[tuple[int, int]]:
    """(microseconds, bytes) of a node's buffers; what an op without outputs keeps is a variable's new value."""
    for memory in node.memory:
        returned = collections.Counter(-r.alloc_bytes for r in memory.allocation_records if r.alloc_bytes < 0)
        for record in memory.allocation_records:
            is_kept = record.alloc_bytes > 0 and not returned[record.alloc_bytes]
            if record.alloc_bytes > 0 and not is_kept:
                returned[record.alloc_bytes] -= 1
            if node.output or not is_kept:
                yield record.alloc_micros, record.alloc_bytes


def _copy(node: Any, ends_micros: list[int]) -> Iterator[tuple[int, int]]:
    """(microseconds, bytes) of what another worker sent."""
    num_bytes = sum(o.tensor_description.allocation_description.requested_bytes for o in node.output)
    arrival = _end_micros(node)
    yield arrival, num_bytes
    yield max([arrival, *ends_micros]), -num_bytes


def _sent_by(node: Any) -> str:
    """The op whose output crossed: TensorFlow calls it edge_NUMBER_OP."""
    edge = next(word for word in node.timeline_label.split() if word.startswith("edge_"))
    return str(edge.split("_", 2)[2])


def _end_micros(node: Any) -> int:
    return int(node.all_start_micros + node.all_end_rel_micros)


def _most(records: list[tuple[int, int]]) -> int:
    held = most = 0
    for _, num_bytes in sorted(records):
        held += num_bytes
        most = max(most, held)
    return most
