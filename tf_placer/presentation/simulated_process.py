"""A simulated step as a process of a Chrome trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.evaluation.step_spans import ON_DEVICES, Kind
from tf_placer.evaluation.timeline import StepTimeline
from tf_placer.presentation.trace_process import Event, Span, TraceProcess, scope_of


def simulated_process(timeline: StepTimeline, pid: int) -> list[Event]:
    """Rows: the step, its critical path, the devices and the channels; memory as counters; arrows for what crosses.

    Ops and transfers that take no time are left out: they have nothing to show, and no row could hold them.
    """
    return _SimulatedProcess(timeline, pid).events()


class _SimulatedProcess:
    def __init__(self, timeline: StepTimeline, pid: int) -> None:
        self._timeline = timeline
        self._problem = timeline.problem
        self._process = TraceProcess(pid, "simulated")
        self._critical = {(stretch.kind, stretch.index) for stretch in timeline.critical_path}
        self._row_of: dict[tuple[Kind, int], int] = {}
        self._devices = self._problem.cluster.labels

    def events(self) -> list[Event]:
        timeline = self._timeline
        step = Span(f"step of {self._problem.name}", "step", 0, timeline.runtime_ns, {})
        self._process.add_spans("step", [step] if timeline.runtime_ns else [])
        path: list[tuple[Kind, int]] = [(stretch.kind, stretch.index) for stretch in timeline.critical_path]
        self._process.add_spans(
            "critical path", [self._span(*part) for part in path if self._takes_time(*part)]
        )
        for device, name in enumerate(self._devices):
            self._add_row(
                name,
                *((kind, timeline.device_of(kind) == device) for kind in ON_DEVICES),
            )
        for channel, name in enumerate(timeline.channel_names):
            if (timeline.transfer_channel == channel).any():
                self._add_row(f"link {name}", ("transfer", timeline.transfer_channel == channel))
        for transfer in range(timeline.num_transfers):
            self._add_arrow(transfer)
        for name, curve in zip(self._devices, timeline.memory, strict=True):
            points = zip(curve.times_ns.tolist(), curve.num_bytes.tolist(), strict=True)
            self._process.add_counter(f"memory of {name}", "bytes", points)
        return self._process.events

    def _add_row(self, name: str, *chosen: tuple[Kind, np.ndarray]) -> None:
        parts = [
            (kind, index)
            for kind, there in chosen
            for index in np.flatnonzero(there).tolist()
            if self._takes_time(kind, index)
        ]
        rows = self._process.add_spans(name, [self._span(*part) for part in parts])
        self._row_of |= dict(zip(parts, rows, strict=True))

    def _takes_time(self, kind: Kind, index: int) -> bool:
        start_ns, end_ns = self._timeline.times_ns(kind)
        return bool(end_ns[index] > start_ns[index])

    def _span(self, kind: Kind, index: int) -> Span:
        op = index if kind == "op" else int(self._timeline.transfer_producer[index])
        name = self._problem.op_names[op]
        args: dict[str, Any] = {"critical": True} if (kind, index) in self._critical else {}
        if kind == "op":
            args |= {
                "type": self._problem.op_types[op],
                "unit": int(self._problem.unit_of_op[op]),
                "scope": scope_of(name),
            }
        else:
            args |= {
                "bytes": int(self._timeline.transfer_bytes[index]),
                "from": self._devices[self._timeline.transfer_source[index]],
                "to": self._devices[self._timeline.transfer_target[index]],
            }
        start_ns, end_ns = (int(times[index]) for times in self._timeline.times_ns(kind))
        return Span(name if kind in ("op", "transfer") else f"{kind} {name}", kind, start_ns, end_ns, args)

    def _add_arrow(self, transfer: int) -> None:
        """From the op that makes a tensor over its way to the first that reads it there, of those that take time."""
        timeline, problem = self._timeline, self._problem
        producer = int(timeline.transfer_producer[transfer])
        begin, end = problem.consumer_offset[timeline.transfer_tensor[transfer] :][:2]
        readers = [
            op
            for op in problem.consumer_op[begin:end].tolist()
            if timeline.device_of_op[op] == timeline.transfer_target[transfer] and self._takes_time("op", op)
        ]
        points = []
        if self._takes_time("op", producer):
            points.append((self._row_of["op", producer], int(timeline.end_ns[producer]) - 1))  # inside it
        ways: tuple[Kind, ...] = ("send", "transfer", "receive")
        for kind in ways:
            if self._takes_time(kind, transfer):
                points.append((self._row_of[kind, transfer], int(self._timeline.times_ns(kind)[0][transfer])))
        if readers:
            first = min(readers, key=lambda op: int(timeline.start_ns[op]))
            points.append((self._row_of["op", first], int(timeline.start_ns[first])))
        if len(points) > 1:
            self._process.add_arrow(problem.op_names[producer], points)
