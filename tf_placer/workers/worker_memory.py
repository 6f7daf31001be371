"""Memory that programs take on one CPU worker, from the kernel and from TensorFlow's allocator."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import threading
import time

from tf_placer.base.quantities import in_unit
from tf_placer.workers import worker_process
from tf_placer.workers.fork_server import ForkedProcess

_ANSWER_TIMEOUT_S = 5.0
_STEADY_S, _STEADY_TIMEOUT_S = 0.3, 2.0
_STEADY_BYTES = 1 << 20
_FORGET_PEAK = "5"  # to clear_refs, see proc_pid_clear_refs(5)


class WorkerMemory:
    """Peak memory of the programs that run on one worker, one program after the other.

        memory.settle()  # before a program is loaded
        memory.begin(small_bytes)  # loaded: its steps count from here
        memory.peak_bytes()

    ``peak_bytes`` is the smaller one of two figures, each an upper bound of the program's memory:

    - the growth of the process's resident memory since the worker started (the kernel's high-water mark, so that no
      short peak is missed). It includes the growth of the runtime, measured at 1 to 12 MB after programs of a few ops
      and up to 45 MB after several training steps of thousands. TensorFlow's allocator for oneDNN never returns memory,
      so after a large program this figure says nothing about a small one;
    - that allocator's peak, plus the growth of the process since ``begin``, plus the program's values that are too
      small for that allocator. It counts whole chunks, up to 128 MB larger than their tensors. The plain allocator,
      which returns memory, does not count, so there this figure is missing.

    The result is loosest on oneDNN's allocator for a program that is larger than all before it on the same worker: it
    may include their memory (measured: 629 MB for a tensor of 400 after one of 200). Fresh workers do not have this
    error, which is why they decide on OUT_OF_MEMORY.

    Sending the values takes several times their size for a moment. The figures leave that out, except that the oneDNN
    allocator keeps the memory of the largest one. Memory that malloc kept from an earlier program is missing from the
    second figure, so malloc is asked to return it first.
    """

    def __init__(self, device: str, memory_bytes: int, process: ForkedProcess) -> None:
        """Describes a worker that listens; ``settle`` must be called before anything is loaded onto it.

        Args:
          device: name of its only device, a CPU.
          memory_bytes: of the device, as described.
          process: with pipes to its stdin and from its stdout.
        """
        self.device, self._memory_bytes = device, memory_bytes
        self._process = process
        self._lock = threading.Lock()
        self.is_mute = False  # it left a question unanswered, so it hangs or is gone
        self._start_bytes: int | None = None
        self._begin_bytes: int | None = None
        self._small_bytes = 0
        self._acquitted_bytes = 0

    def settle(self) -> None:
        """Lets malloc return free memory. The first time, the remainder counts as the runtime's."""
        self._ask(worker_process.RESTART_PEAK)
        if self._start_bytes is None:
            self._start_bytes = self._steady_bytes()

    def begin(self, small_bytes: int = 0) -> None:
        """Peaks count from now on.

        Args:
          small_bytes: sum of the loaded values below ``SMALL_VALUE_BYTES``.
        """
        self._ask(worker_process.RESTART_PEAK)
        self._acquitted_bytes, self._small_bytes = 0, small_bytes
        self._begin_bytes = None
        with contextlib.suppress(OSError):  # the process is gone, or the kernel does not allow it
            pathlib.Path(f"/proc/{self._process.pid}/clear_refs").write_text(_FORGET_PEAK, encoding="ascii")
            self._begin_bytes = _status_bytes(self._process.pid, "VmRSS")

    def peak_bytes(self) -> int | None:
        """Upper bound of the program's peak memory since ``begin``; None where it is unknown."""
        peak = _status_bytes(self._process.pid, "VmHWM")
        if peak is None or self._start_bytes is None or self._begin_bytes is None:
            return None
        grown = max(peak - self._start_bytes, 0)
        allocated = self._ask(worker_process.TELL_PEAK)
        if allocated is None:
            return grown
        return min(grown, allocated + self._small_bytes + max(peak - self._begin_bytes, 0))

    def excess(self) -> str | None:
        """One line if the program has exceeded the memory of the device, else None.

        Cheap enough for a timed step: the worker itself is only asked when the kernel's figure is too large and has
        grown since the last question.
        """
        resident = _status_bytes(self._process.pid, "VmHWM")
        if resident is None or self._start_bytes is None or self._begin_bytes is None:
            return None
        if resident - self._start_bytes <= max(self._memory_bytes, self._acquitted_bytes):
            return None
        used = self.peak_bytes()
        if used is None or used <= self._memory_bytes:
            self._acquitted_bytes = resident - self._start_bytes
            return None
        return (
            f"{self.device} has {in_unit(self._memory_bytes, 'MB')}, and the program took "
            f"{in_unit(used, 'MB')}"
        )

    def _steady_bytes(self) -> int | None:
        """Resident memory once its growth has ended: a new server still takes 40 MB for itself."""
        steady_since, resident = time.monotonic(), _status_bytes(self._process.pid, "VmRSS")
        deadline = steady_since + _STEADY_TIMEOUT_S
        while resident is not None and time.monotonic() < min(steady_since + _STEADY_S, deadline):
            time.sleep(_STEADY_S / 10)
            now = _status_bytes(self._process.pid, "VmRSS")
            if now is None or now > resident + _STEADY_BYTES:
                steady_since, resident = time.monotonic(), now
        return resident

    def _ask(self, question: bytes) -> int | None:
        """Answer of the worker's allocator; None if it does not count, or the worker is dead or hangs."""
        stdin, stdout = self._process.stdin, self._process.stdout
        line, deadline = bytearray(), time.monotonic() + _ANSWER_TIMEOUT_S
        with self._lock:
            if self.is_mute:  # a late answer would be taken for that to the next question
                return None
            try:
                stdin.write(question)
                stdin.flush()
                while not line.endswith(b"\n"):
                    readable, _, _ = select.select([stdout], [], [], max(deadline - time.monotonic(), 0.0))
                    piece = os.read(stdout.fileno(), 4096) if readable else b""
                    if not piece:
                        raise EOFError(f"worker {self._process.pid} is gone or did not answer")
                    line += piece
                answer = json.loads(line)
                return None if answer is None else int(answer)
            except (OSError, ValueError, EOFError):
                self.is_mute = True
                return None


def _status_bytes(pid: int, field: str) -> int | None:
    """A size in /proc/PID/status in bytes; None if the process is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith(f"{field}:"):
                    return int(line.split()[1]) * 1024  # "kB" there means KiB
    except OSError:
        pass
    return None
