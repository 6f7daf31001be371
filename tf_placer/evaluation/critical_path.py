"""Why a step takes as long as it does: the chain of what each thing on it waited for."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from tf_placer.evaluation.step_spans import NEVER_NS, ON_DEVICES, Kind, StepSpans

Cause = Literal["input", "device", "channel", "start"]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """One op or one part of a transfer on the critical path.

    Attributes:
      kind: an op; the source's part of a transfer, its way through the channel, or the target's part.
      index: the op, or the position of the transfer.
      start_ns, end_ns: when it runs.
      after: what ended as it began: an input of it, or what kept its device or its channel busy; "start" for the first.
    """

    kind: Kind
    index: int
    start_ns: int
    end_ns: int
    after: Cause


def critical_path(spans: StepSpans) -> tuple[Stretch, ...]:
    """From the start of a simulated step to its last end: each stretch begins when the one before it ends.

    Where several things ended as a stretch began, an input comes before what kept its device or channel busy.
    """
    return _Path(spans).back_from_the_end()


class _Path:
    def __init__(self, spans: StepSpans) -> None:
        self._spans = spans
        problem = spans.problem
        self._read = problem.op_graph.tensor[problem.op_graph.in_edge]  # tensors, by the op that reads them
        self._read_begin = problem.op_graph.in_offset
        pairs = zip(spans.transfer_tensor.tolist(), spans.transfer_target.tolist(), strict=True)
        self._transfer_of = {pair: k for k, pair in enumerate(pairs)}
        self._ends_on_device: dict[tuple[int, int], tuple[Kind, int]] = {}
        for kind in ON_DEVICES:
            self._add_ends(self._ends_on_device, kind, spans.device_of(kind))
        self._ends_on_channel: dict[tuple[int, int], tuple[Kind, int]] = {}
        self._channel = spans.transfer_channel
        self._add_ends(self._ends_on_channel, "transfer", self._channel)

    def _add_ends(self, ends: dict[tuple[int, int], tuple[Kind, int]], kind: Kind, where: np.ndarray) -> None:
        """Of what takes time: what takes none keeps nothing busy."""
        start_ns, end_ns = self._spans.times_ns(kind)
        for i in np.flatnonzero(end_ns > start_ns).tolist():
            ends.setdefault((int(where[i]), int(end_ns[i])), (kind, i))

    def back_from_the_end(self) -> tuple[Stretch, ...]:
        found: list[Stretch] = []
        kind: Kind = "op"
        index = int(self._spans.end_ns.argmax())
        while True:
            start_ns, end_ns = (int(times[index]) for times in self._spans.times_ns(kind))
            before = self._input(kind, index, start_ns)
            cause: Cause = "input"
            if before is None and start_ns > 0:
                before, cause = self._busy(kind, index, start_ns)
            found.append(Stretch(kind, index, start_ns, end_ns, "start" if before is None else cause))
            if before is None:
                return tuple(reversed(found))
            kind, index = before

    def _busy(self, kind: Kind, index: int, start_ns: int) -> tuple[tuple[Kind, int], Cause]:
        """What ended there as this began: it was ready before, or an input would have ended then."""
        if kind == "transfer":
            return self._ends_on_channel[int(self._channel[index]), start_ns], "channel"
        return self._ends_on_device[int(self._spans.device_of(kind)[index]), start_ns], "device"

    def _input(self, kind: Kind, index: int, start_ns: int) -> tuple[Kind, int] | None:
        """What it waits for that ended as it began."""
        for before in self._waits_for(kind, index):
            if self._spans.times_ns(before[0])[1][before[1]] == start_ns:
                return before
        return None

    def _waits_for(self, kind: Kind, index: int) -> list[tuple[Kind, int]]:
        spans = self._spans
        if kind == "op":
            begin, end = self._read_begin[index : index + 2]
            device = int(spans.device_of_op[index])
            return [self._arrival(int(tensor), device) for tensor in self._read[begin:end]]
        if kind == "receive":
            return [("transfer", index)]
        if kind == "transfer" and spans.send_start_ns[index] != NEVER_NS:
            return [("send", index)]
        return [("op", int(spans.transfer_producer[index]))]

    def _arrival(self, tensor: int, device: int) -> tuple[Kind, int]:
        """What puts a tensor on a device: its producer, or the last part of its transfer."""
        producer = int(self._spans.problem.tensor_producer[tensor])
        if self._spans.device_of_op[producer] == device:
            return "op", producer
        transfer = self._transfer_of[tensor, device]
        received = self._spans.receive_start_ns[transfer] != NEVER_NS
        return ("receive" if received else "transfer"), transfer
