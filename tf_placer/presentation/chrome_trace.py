"""Chrome traces of a step, simulated or traced by the runtime, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import heapq
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.eager import eagerly
from tf_placer.base.files import write_atomically
from tf_placer.cluster.device import device_labels
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.timeline import ON_DEVICES, Kind, StepTimeline, simulated_timeline
from tf_placer.graph.program import SHARED
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import CLUSTER, Problem
from tf_placer.runtime.audit import node_times_ns, owner

Event = dict[str, Any]  # of the format
SIMULATED_PID, MEASURED_PID = 1, 2
_RECEIVED, _SOURCE = "RecvTensor", "_SOURCE"  # nodes of a traced step
_TYPE = re.compile(r" = (\w+)\(")
_CROSSED = re.compile(r" edge_\d+_(?P<name>\S+) from (?P<source>\S+) to (?P<target>\S+)$")


class Span(NamedTuple):
    """Something that runs from its start to its end, in nanoseconds since the step began."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class TraceProcess:
    """Collects the events of one process: rows of spans, counters and arrows.

    process = TraceProcess(1, "simulated")
    rows = process.add_spans("GPU:0", spans)  # one row, or as many as run at once
    process.add_arrow([(rows[0], spans[0].end_ns - 1), (rows[1], spans[1].start_ns)])
    process.events
    """

    def __init__(self, pid: int, name: str) -> None:
        self.events: list[Event] = []
        self._pid = pid
        self._num_rows = self._num_arrows = 0
        self._add(name="process_name", ph="M", ts=0, tid=0, args={"name": name})
        self._add(name="process_sort_index", ph="M", ts=0, tid=0, args={"sort_index": pid})

    def _add(self, **event: Any) -> None:
        self.events.append({**event, "pid": self._pid})

    def add_spans(self, row_name: str, spans: Sequence[Span]) -> list[int]:
        """Draws spans that take time in a row, or where several run at once in more; returns the row of each span."""
        lanes = lanes_of([(span.start_ns, span.end_ns) for span in spans])
        count = max(lanes, default=0) + 1
        for row in range(self._num_rows + 1, self._num_rows + count + 1):
            title = row_name if count == 1 else f"{row_name} ({row - self._num_rows})"
            self._add(name="thread_name", ph="M", ts=0, tid=row, args={"name": title})
            self._add(name="thread_sort_index", ph="M", ts=0, tid=row, args={"sort_index": row})
        rows = [self._num_rows + 1 + lane for lane in lanes]
        self._num_rows += count
        for span, row in zip(spans, rows, strict=True):
            times = {"ts": _us(span.start_ns), "dur": _us(span.end_ns - span.start_ns)}
            self._add(name=span.name, cat=span.category, ph="X", **times, tid=row, args=span.args)
        return rows

    def add_counter(self, name: str, unit: str, points: Iterable[tuple[int, int]]) -> None:
        """Draws a curve through (nanoseconds, value): each value holds until the next."""
        for at_ns, value in points:
            self._add(name=name, ph="C", ts=_us(at_ns), tid=0, args={unit: value})

    def add_arrow(self, name: str, points: Sequence[tuple[int, int]]) -> None:
        """Draws arrows from span to span: (row, nanoseconds) inside each of at least two, in the order of time."""
        self._num_arrows += 1
        phases = ["s", *"t" * (len(points) - 2), "f"]
        for phase, (row, at_ns) in zip(phases, points, strict=True):
            # Else an arrow ends at the next span of the row and not at the one that it points into.
            binding = {"bp": "e"} if phase == "f" else {}
            number, ts = self._num_arrows, _us(at_ns)
            self._add(name=name, cat="crosses", ph=phase, id=number, ts=ts, tid=row, **binding)


def lanes_of(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Lane of each (start, end), the lowest that is free then: as many lanes as spans that are open at once."""
    lanes = [0] * len(spans)
    busy: list[tuple[int, int]] = []  # heap of (end, lane)
    free: list[int] = []
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        start, end = spans[i]
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lanes[i] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, lanes[i]))
    return lanes


def _us(time_ns: int) -> float:
    return int(time_ns) / 1000


class _SimulatedProcess(TraceProcess):
    """A simulated step: critical path, devices and channels as rows; memory as counters; arrows for what crosses.

    Ops and transfers that take no time are left out: they have nothing to show, and no row could hold them.
    """

    def __init__(self, timeline: StepTimeline) -> None:
        super().__init__(SIMULATED_PID, "simulated")
        self._timeline = timeline
        self._problem = timeline.problem
        self._devices = self._problem.cluster.labels
        path: list[tuple[Kind, int]] = [(stretch.kind, stretch.index) for stretch in timeline.critical_path]
        self._critical = set(path)
        self._row_of: dict[tuple[Kind, int], int] = {}
        step = Span(f"step of {self._problem.name}", "step", 0, timeline.runtime_ns, {})
        self.add_spans("step", [step] if timeline.runtime_ns else [])
        self._add_parts("critical path", path)
        for device, name in enumerate(self._devices):
            masks = {kind: timeline.device_of(kind) == device for kind in ON_DEVICES}
            parts = ((kind, i) for kind, mask in masks.items() for i in np.flatnonzero(mask).tolist())
            self._add_parts(name, parts)
        for channel, name in enumerate(self._problem.cluster.channel_names()):
            transfers = np.flatnonzero(timeline.transfer_channel == channel).tolist()
            if transfers:
                self._add_parts(f"link {name}", (("transfer", i) for i in transfers))
        for transfer in range(len(timeline.transfer_tensor)):
            self._add_arrow(transfer)
        for name, curve in zip(self._devices, timeline.memory, strict=True):
            points = zip(curve.times_ns.tolist(), curve.num_bytes.tolist(), strict=True)
            self.add_counter(f"memory of {name}", "bytes", points)

    def _add_parts(self, title: str, parts: Iterable[tuple[Kind, int]]) -> None:
        parts, spans = [part for part in parts if self._takes_time(*part)], list[Span]()
        for kind, index in parts:
            op = index if kind == "op" else int(self._timeline.transfer_producer[index])
            name = self._problem.op_names[op]
            args: dict[str, Any] = {"critical": True} if (kind, index) in self._critical else {}
            if kind == "op":
                args |= {
                    "type": self._problem.op_types[op],
                    "unit": int(self._problem.unit_of_op[op]),
                    "scope": name.rpartition("/")[0],
                }
                splitting = self._problem.splitting
                if splitting is not None and (part := splitting.part_of(name)) != SHARED:
                    args["part"] = part
            else:
                args |= {
                    "bytes": int(self._timeline.transfer_bytes[index]),
                    "from": self._devices[self._timeline.transfer_source[index]],
                    "to": self._devices[self._timeline.transfer_target[index]],
                }
            start_ns, end_ns = (int(times[index]) for times in self._timeline.times_ns[kind])
            spans.append(
                Span(name if kind in ("op", "transfer") else f"{kind} {name}", kind, start_ns, end_ns, args)
            )
        self._row_of |= dict(zip(parts, self.add_spans(title, spans), strict=True))

    def _takes_time(self, kind: Kind, index: int) -> bool:
        start_ns, end_ns = self._timeline.times_ns[kind]
        return bool(end_ns[index] > start_ns[index])

    def _add_arrow(self, transfer: int) -> None:
        """Adds the arrow of a transfer: from the producer to the first reader there, of ops that take time."""
        timeline, problem = self._timeline, self._problem
        producer = int(timeline.transfer_producer[transfer])
        begin, end = problem.consumer_offset[timeline.transfer_tensor[transfer] :][:2]
        readers = problem.consumer_op[begin:end]
        readers = readers[timeline.device_of_op[readers] == timeline.transfer_target[transfer]]
        readers = readers[np.argsort(timeline.start_ns[readers], kind="stable")]
        ways: tuple[Kind, ...] = ("send", "transfer", "receive")
        parts: list[tuple[Kind, int]] = [("op", producer), *((kind, transfer) for kind in ways)]
        parts += [("op", reader) for reader in readers.tolist() if self._takes_time("op", reader)][:1]
        points = []
        for kind, i in (part for part in parts if self._takes_time(*part)):
            start_ns, end_ns = (int(times[i]) for times in timeline.times_ns[kind])
            is_producer = (kind, i) == parts[0]
            points.append((self._row_of[kind, i], end_ns - 1 if is_producer else start_ns))  # inside it
        if len(points) > 1:
            self.add_arrow(problem.op_names[producer], points)


def measured_process(problem: Problem, trace: tf.compat.v1.RunMetadata) -> list[Event]:
    """Rows: each device's kernels, as many rows as run at once, and its receipts.

    The step, run with FULL_TRACE, begins with the first node of the trace, by the clocks of the workers. Each cluster
    is one op of the problem.
    """
    number_of = _traced_names(problem)
    order = {device.name: position for position, device in enumerate(problem.cluster.devices)}
    # Of a device, and whether they are receipts.
    spans_of: defaultdict[tuple[str, bool], list[Span]] = defaultdict(list)
    for device in trace.step_stats.dev_stats:
        for node in device.node_stats:
            if node.node_name == _RECEIVED:
                crossed, name = _CROSSED.search(node.timeline_label), node.timeline_label or node.node_name
                tensors = [output.tensor_description.allocation_description for output in node.output]
                args: dict[str, Any] = {"bytes": sum(tensor.requested_bytes for tensor in tensors)}
                if crossed is not None:
                    name = crossed["name"]
                    args |= {"from": crossed["source"], "to": crossed["target"]}
                spans_of[device.device, True].append(Span(name, "transfer", *node_times_ns(node), args))
            elif node.node_name != _SOURCE:
                # Type and unit are the plan's: the trace has the kernel's type, which differs among processors.
                op, kernel = owner(node.node_name, number_of), _TYPE.search(node.timeline_label)
                args = {"scope": node.node_name.rpartition("/")[0], "type": kernel[1] if kernel else ""}
                if op is not None:  # not the runtime's own
                    number = number_of[op]
                    args |= {"type": problem.op_types[number], "unit": int(problem.unit_of_op[number])}
                spans_of[device.device, False].append(Span(node.node_name, "op", *node_times_ns(node), args))
    begin_ns = min((span.start_ns for spans in spans_of.values() for span in spans), default=0)
    process, devices = TraceProcess(MEASURED_PID, "measured"), {*order, *(device for device, _ in spans_of)}
    names = sorted(devices, key=lambda name: (order.get(name, len(order)), name))
    for name, label in zip(names, device_labels(names), strict=True):
        for is_receipt, row in ((False, label), (True, f"received by {label}")):
            if (spans := spans_of[name, is_receipt]) or not is_receipt:
                process.add_spans(
                    row,
                    [
                        span._replace(start_ns=span.start_ns - begin_ns, end_ns=span.end_ns - begin_ns)
                        for span in spans
                        if span.end_ns > span.start_ns
                    ],
                )
    return process.events


def _traced_names(problem: Problem) -> dict[str, int]:
    """Names of a problem's ops in a trace, where a call has its cluster's name without scope -> positions."""
    pairs = zip(problem.op_names, problem.op_types, strict=True)
    names = (name.rpartition("/")[2] if kind.startswith(CLUSTER) else name for name, kind in pairs)
    return {name: number for number, name in enumerate(names)}


def measured_spans(problem: Problem, trace: tf.compat.v1.RunMetadata) -> np.ndarray:
    """[N, 2] int64 nanoseconds since a traced step began, from the first to the last kernel of each op; 0 for none."""
    number_of, spans = _traced_names(problem), dict[int, list[tuple[int, int]]]()
    for node in (node for device in trace.step_stats.dev_stats for node in device.node_stats):
        op = None if node.node_name == _RECEIVED else owner(node.node_name, number_of)
        if op is not None:
            spans.setdefault(number_of[op], []).append(node_times_ns(node))
    ends = {op: (min(times)[0], max(end for _, end in times)) for op, times in spans.items()}
    begin_ns = min((start for start, _ in ends.values()), default=0)
    measured = np.zeros((problem.num_ops, 2), int)
    for number, times in ends.items():
        measured[number] = np.subtract(times, begin_ns)
    return measured


def chrome_trace(placement: Placement, measured: tf.compat.v1.RunMetadata | None = None) -> str:
    """The JSON of a trace: the step as simulated and, beside that from the same 0 on, as traced by the runtime.

    ``measured`` is what ``RuntimeEvaluator.traced_step`` gives of the plan; None where it was not run.
    """
    timeline = simulated_timeline(placement.problem, placement.decisions)
    events = _SimulatedProcess(timeline).events
    if measured is not None:
        events += measured_process(timeline.problem, measured)
    lines = ",\n".join(json.dumps(event, allow_nan=False, separators=(",", ":")) for event in events)
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'


@eagerly()
def write_timeline(
    path: str | os.PathLike[str], placement: Placement, evaluator: RuntimeEvaluator | None = None
) -> None:
    """Writes one step of a plan as a Chrome trace, whole or not at all: for Perfetto or chrome://tracing.

    Args:
      path: the file to write, for example ``timeline.json``.
      placement: the plan; whether it fits in memory or not.
      evaluator: runs the plan for one traced step, which stands beside the simulated one; None simulates alone.

    Raises:
      InputError: an argument of another type, or ``path`` cannot be written to.
      TraceFailed: the plan does not run.
    """
    file = arguments.file_to_write("path", path)
    arguments.instance_of(
        "placement", placement, Placement, "give the plan, for example SearchResult.placement"
    )
    if evaluator is not None:
        arguments.instance_of("evaluator", evaluator, RuntimeEvaluator, "give a RuntimeEvaluator, or None")
    measured = None if evaluator is None else evaluator.traced_step(placement.decisions)
    write_atomically(file, chrome_trace(placement, measured))
