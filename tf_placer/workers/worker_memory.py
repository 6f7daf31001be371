"""Memory of one CPU worker that programs take, from the kernel and from TensorFlow's allocator."""

from __future__ import annotations

import json
import os
import select
import threading
import time

from tf_placer.base.quantities import in_unit
from tf_placer.cluster.device import Device
from tf_placer.workers import worker_process
from tf_placer.workers.fork_server import ForkedProcess

_ANSWER_TIMEOUT_S = 5.0
_STEADY_S, _STEADY_TIMEOUT_S = 0.3, 2.0
_STEADY_BYTES = 1 << 20
_FORGET_PEAK = "5"  # to clear_refs, see proc_pid_clear_refs(5)


class WorkerMemory:
    """Peak memory of the programs that run on one worker, one program after the other.

        memory.settle()  # before a program is loaded
        memory.begin(small_bytes)  # loaded: what its steps take counts from here
        memory.peak_bytes()

    Two figures, each at least what the program takes, and ``peak_bytes`` is the smaller one:

    - the growth of the process's resident memory since the worker started (the kernel's high-water mark, so that no
      short peak is missed). It holds the runtime's own growth, measured at 1 to 12 MB after programs of a few ops and
      up to 45 MB after several training steps of thousands. TensorFlow's allocator for oneDNN keeps what it once had,
      so after a large program this figure says nothing about a small one;
    - that allocator's peak, plus what the process has grown by since ``begin``, plus the program's values that are
      too small for that allocator. It counts whole chunks, up to 128 MB larger than their tensors. Where the
      plain allocator is in use, which gives back and does not count, there is no such figure.

    The result is loosest on oneDNN's allocator for a program that is larger than all before it on the same worker: it
    may count what they left on top of its own (measured: 629 MB for a tensor of 400 after one of 200). On fresh workers
    it does not, which is why they have the last word on OUT_OF_MEMORY.

    Sending the values takes several times their size for a moment; that is no part of the figures, except that
    the oneDNN allocator keeps what the largest of them took. What a program takes of memory that malloc kept from
    an earlier one is missing from the second figure; malloc is told to give back first.
    """

    def __init__(self, device: Device, process: ForkedProcess) -> None:
        """Knows a worker that listens; ``settle`` must be called before anything is loaded onto it.

        Args:
          device: its only device, a CPU.
          process: with pipes to its stdin and from its stdout.
        """
        self.device = device
        self._process = process
        self._lock = threading.Lock()
        self._is_mute = False
        self._start_bytes: int | None = None
        self._begin_bytes: int | None = None
        self._small_bytes = 0
        self._acquitted_bytes = 0

    def settle(self) -> None:
        """Lets malloc give back what is free. The first time, what is left counts as the runtime's own."""
        self._ask(worker_process.RESTART_PEAK)
        if self._start_bytes is None:
            self._start_bytes = self._steady_bytes()

    def begin(self, small_bytes: int = 0) -> None:
        """Peaks count from now on.

        Args:
          small_bytes: of the loaded values below ``SMALL_VALUE_BYTES``, together.
        """
        self._ask(worker_process.RESTART_PEAK)
        self._acquitted_bytes, self._small_bytes = 0, small_bytes
        self._begin_bytes = None
        if _forget_peak(self._process.pid):
            self._begin_bytes = _status_bytes(self._process.pid, "VmRSS")

    def peak_bytes(self) -> int | None:
        """The most that the program has taken since ``begin``, or somewhat more; None where nobody can tell."""
        peak = _status_bytes(self._process.pid, "VmHWM")
        if peak is None or self._start_bytes is None or self._begin_bytes is None:
            return None
        grown = max(peak - self._start_bytes, 0)
        allocated = self._ask(worker_process.TELL_PEAK)
        if allocated is None:
            return grown
        return min(grown, allocated + self._small_bytes + max(peak - self._begin_bytes, 0))

    @property
    def is_mute(self) -> bool:
        """True if the worker once left a question unanswered: it hangs, or is gone."""
        return self._is_mute

    def excess(self) -> str | None:
        """One line when the program has taken more than the device is described to have, else None.

        Cheap enough to be asked during a timed step: the worker itself is only asked when the kernel's figure is over
        and has grown since.
        """
        resident = _status_bytes(self._process.pid, "VmHWM")
        if resident is None or self._start_bytes is None or self._begin_bytes is None:
            return None
        if resident - self._start_bytes <= max(self.device.memory_bytes, self._acquitted_bytes):
            return None
        used = self.peak_bytes()
        if used is None or used <= self.device.memory_bytes:
            self._acquitted_bytes = resident - self._start_bytes
            return None
        return (
            f"{self.device.name} has {in_unit(self.device.memory_bytes, 'MB')}, and the program took "
            f"{in_unit(used, 'MB')}"
        )

    def _steady_bytes(self) -> int | None:
        """Resident memory once it no longer grows: a server that listens still takes 40 MB for itself."""
        steady_since, resident = time.monotonic(), _status_bytes(self._process.pid, "VmRSS")
        deadline = steady_since + _STEADY_TIMEOUT_S
        while resident is not None and time.monotonic() < min(steady_since + _STEADY_S, deadline):
            time.sleep(_STEADY_S / 10)
            now = _status_bytes(self._process.pid, "VmRSS")
            if now is None or now > resident + _STEADY_BYTES:
                steady_since, resident = time.monotonic(), now
        return resident

    def _ask(self, question: bytes) -> int | None:
        """Answer of the worker's allocator; None when it cannot tell, or the worker is dead or hangs."""
        with self._lock:
            if self._is_mute:  # a late answer would be taken for that to the next question
                return None
            try:
                answer = self._exchange(question)
            except (OSError, ValueError, EOFError):
                self._is_mute = True
                return None
            return None if answer is None else int(answer)

    def _exchange(self, question: bytes) -> int | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        stdin.write(question)
        stdin.flush()
        line, deadline = bytearray(), time.monotonic() + _ANSWER_TIMEOUT_S
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([stdout], [], [], max(deadline - time.monotonic(), 0.0))
            if not readable:
                raise TimeoutError(f"worker {self._process.pid} did not answer")
            piece = os.read(stdout.fileno(), 4096)
            if not piece:
                raise EOFError(f"worker {self._process.pid} is gone")
            line += piece
        return json.loads(line)


def _status_bytes(pid: int, field: str) -> int | None:
    """A size of /proc/PID/status in bytes; None when the process is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith(f"{field}:"):
                    return int(line.split()[1]) * 1024  # "kB" there means KiB
    except OSError:
        pass
    return None


def _forget_peak(pid: int) -> bool:
    """Sets VmHWM to VmRSS; whether this kernel lets us."""
    try:
        with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
            file.write(_FORGET_PEAK)
    except OSError:
        return False
    return True
