"""Keeps a program within the described memory of the devices that it runs on."""

from __future__ import annotations

import dataclasses

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
        """Before the program is loaded."""
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
        """Whether a worker left a question about its memory unanswered: it hangs, and so would the next program."""
        return any(memory.is_mute for memory in self.memories)

    def peak_bytes(self) -> dict[str, int]:
        """Device name -> most bytes since ``begin`` (``WorkerMemory``), of the devices that can be told."""
        told = {memory.device.name: memory.peak_bytes() for memory in self.memories}
        return {name: peak for name, peak in told.items() if peak is not None}
