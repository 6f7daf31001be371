"""Drawings of a step: in the report's page, which is one HTML file, and as Chrome traces for Perfetto."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import itertools
import json
import os
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from colocation.op_facts import VARIABLES
from tf_placer.base import arguments
from tf_placer.base.eager import eagerly
from tf_placer.base.files import write_atomically
from tf_placer.cluster.device import device_labels
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.timeline import ON_DEVICES, Kind, MemoryCurve, StepTimeline, simulated_timeline
from tf_placer.graph.program import SHARED
from tf_placer.problem.layers import layers_of_parts
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import CLUSTER, Problem
from tf_placer.runtime.audit import node_times_ns, owner

_FOLDER = pathlib.Path(__file__).parent
_ASSETS, _ECHARTS = _FOLDER / "assets", _FOLDER / "echarts" / "echarts.min.js"
# In the order in which they need each other: constants are made when a script is read.
_SCRIPTS = (
    *("format", "charts", "step_times", "lanes", "timeline", "timeline_events", "memory", "layers"),
    *("transfers", "progress", "apply", "main"),
)
_SLICES = 400  # of the step, in each of which the page has the most memory in use
_SLOT = re.compile(r"{{(\w+)}}")
# In a script element these could end it, or begin a comment; in JSON they only stand in strings, which a program's
# names of its ops cannot leave so.
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
SIMULATED_PID, MEASURED_PID = 1, 2
_RECEIVED, _SOURCE = "RecvTensor", "_SOURCE"  # nodes of a traced step
_TYPE = re.compile(r" = (\w+)\(")
_CROSSED = re.compile(r" edge_\d+_(?P<name>\S+) from (?P<source>\S+) to (?P<target>\S+)$")

Event = dict[str, Any]
"""Event of a Chrome trace."""
Row = Mapping[str, Any]
"""A row or the columns of a table or a chart, with the names that they have in JSON."""


@dataclasses.dataclass(frozen=True, eq=False)
class StepView:
    """One step of a plan."""

    step_ns: int  # how long it takes
    bound_by: tuple[tuple[str, float], ...]  # what bounds the critical path, and its share of the step
    peak_share: float | None  # FLOPs, of what the devices with ops could do in that time
    devices: tuple[Row, ...]  # [D]
    channels: tuple[str, ...]  # names of the links' channels
    parts: int  # of the batch; 1 where it is whole
    types: tuple[str, ...]  # of ops
    scopes: tuple[str, ...]  # beginnings of names of ops
    # layer_name, layer_parent: [L] layers; the parent is a position before the layer's own, -1 for none
    layer_name: tuple[str, ...]
    layer_parent: np.ndarray
    ops: Row  # [N] columns, and positions of some ops
    transfers: Row  # [X], likewise
    chores: Row  # [Y] sends and receives that take time of their device, where hardware does not do them
    # [D] bytes in use from each moment on: thinned, but for the peak
    memory: tuple[Row, ...]
    # (nanoseconds, place, place) where the critical path changes its place: a device, or the number of devices and a
    # channel
    path_links: tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class HowTo:
    """One way to use the plan: a sentence, and what to type; "" for nothing."""

    text: str
    code: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Section:
    """One program on one cluster."""

    name: str  # what a list of several calls it
    title: str  # the program and the cluster
    headline: str  # the verdict in one sentence
    notes: tuple[str, ...]  # paragraphs below it
    figures: tuple[tuple[str, str], ...]  # (word, value) of the numbers to remember
    # the rows, in the order of the table: ``name``; a time for each clock, ``simulated_s``, ``measured_s`` (alone),
    # ``raced_s`` and ``called_s``; quartiles ``spread_s`` of the last one, ``evaluations`` and ``peak_bytes`` (null
    # where they are not known); ``is_single`` of the best single device; ``is_written`` of the plan that the page is
    # about; ``note``, what else there is to say, and ``about``, what the name stands for ("" for nothing); ``plan``, a
    # ``StepView`` of a rival's plan, or null
    step_times: tuple[Row, ...]
    # what none of them can beat in the simulator: ``name``, ``bound_s``, ``is_tightest`` and ``about``
    bounds: tuple[Row, ...]
    plan: StepView | None  # the step as the plan has it; None where there is no plan
    # of the searches: ``name``; ``elapsed_s`` and ``best_s``, the seconds at which something better was found and its
    # step time, the last of them the end of the search; ``is_written`` where the plan comes from it
    curves: tuple[Row, ...]
    apply: tuple[HowTo, ...]  # how to use the plan
    # ``clock``, the name of the time by which rows are compared, and ``single_s``, the fastest single device by that
    compared: Row


@dataclasses.dataclass(frozen=True, eq=False)
class Page:
    """A page; several programs are shown one at a time."""

    title: str
    sections: tuple[Section, ...]
    origin: tuple[tuple[str, str], ...] = ()  # (word, value): version, date, command, seed, machine


def page_html(page: Page) -> str:
    """A page as one HTML file that needs no network, with data, charting library and code inside.

    Only the scripts of this package run: the page's own policy names them by their hashes, so text that comes with a
    program can start nothing, and nothing is loaded from anywhere.
    """
    scripts = {"echarts": _ECHARTS.read_text(encoding="utf8")}
    scripts["script"] = "\n".join((_ASSETS / f"{name}.js").read_text(encoding="utf8") for name in _SCRIPTS)
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts.values()]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    content = json.dumps(  # of dataclasses, arrays and numbers of NumPy
        page,
        default=lambda value: vars(value) if dataclasses.is_dataclass(value) else value.tolist(),
        separators=(",", ":"),
        allow_nan=False,
    )
    parts = {
        "policy": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}",
        "title": html.escape(page.title),
        "style": (_ASSETS / "page.css").read_text(encoding="utf8"),
        "data": content.translate(_ESCAPED),
        **scripts,
    }
    return _SLOT.sub(lambda slot: parts[slot[1]], (_ASSETS / "page.html").read_text(encoding="utf8"))


def draw_step(
    problem: Problem, decisions: Decisions, traced: tf.compat.v1.RunMetadata | None = None
) -> StepView:
    """Events in the simulator of one step of one plan, which need not fit in memory; a cluster is one op.

    Ops also have the times that they took in the step that the runtime ``traced``.
    """
    timeline = simulated_timeline(problem, decisions)
    problem = timeline.problem
    transfer_start_ns, transfer_end_ns = timeline.times_ns["transfer"]
    measured = np.zeros((0, 2), int) if traced is None else measured_spans(problem, traced)
    labels = problem.cluster.labels
    layers = layers_of_parts(problem)
    types = tuple(dict.fromkeys(problem.op_types))
    number_of_type = {op_type: i for i, op_type in enumerate(types)}
    # Names in two parts: up to the last slash, which many share, and the rest.
    names = [name.rpartition("/") for name in problem.op_names]
    scopes = tuple(dict.fromkeys(scope + slash for scope, slash, _ in names))
    number_of_scope = {scope: i for i, scope in enumerate(scopes)}
    output_bytes = np.bincount(problem.tensor_producer, problem.tensor_bytes, problem.num_ops)
    # What stays of each unit, at its first variable, or at its first op without any.
    is_variable = np.isin(problem.op_types, sorted(VARIABLES))
    order = np.lexsort((~is_variable, problem.unit_of_op))
    units, first_ops = np.unique(problem.unit_of_op[order], return_index=True)
    resident_bytes = np.zeros(problem.num_ops, np.int64)
    resident_bytes[order[first_ops]] = problem.resident_bytes[units]
    return StepView(
        step_ns=timeline.runtime_ns,
        bound_by=tuple(timeline.bound_by().items()),
        peak_share=timeline.peak_share(),
        devices=tuple(
            {"label": label, "name": device.name, "capacity_bytes": device.memory_bytes}
            for label, device in zip(labels, problem.cluster.devices, strict=True)
        ),
        channels=_channel_labels(problem, labels),
        parts=1 if problem.splitting is None else problem.splitting.parts,
        types=types,
        scopes=scopes,
        layer_name=tuple(name.rpartition("/")[2] for name in layers.names),
        layer_parent=layers.parent,
        ops={
            # Its position, and what follows it in the name.
            "scope": np.array([number_of_scope[scope + slash] for scope, slash, _ in names], np.int32),
            "leaf": [leaf for *_, leaf in names],
            "type": np.array([number_of_type[op_type] for op_type in problem.op_types], np.int32),
            "layer": layers.layer_of_op,
            "device": timeline.device_of_op,
            "part": problem.part_of_op(),  # of the batch that the op is a copy for; -1 where it is none
            "limit": timeline.limit_of_op,  # compute, memory or launch; None where the work is not known
            "start_ns": timeline.start_ns,
            "duration_ns": timeline.end_ns - timeline.start_ns,
            # Of a step on the runtime, or [0]; what has no kernel takes no time.
            "measured_start_ns": measured[:, 0],
            "measured_duration_ns": measured[:, 1] - measured[:, 0],
            "output_bytes": output_bytes.astype(np.int64),
            "resident_bytes": resident_bytes,
            "critical": _on_path(timeline, "op"),
            "fused": np.flatnonzero([name.startswith(CLUSTER) for name in problem.op_types]),
        },
        transfers={
            "op": timeline.transfer_producer,
            "source": timeline.transfer_source,
            "target": timeline.transfer_target,
            "channel": timeline.transfer_channel,
            "start_ns": transfer_start_ns,
            "duration_ns": transfer_end_ns - transfer_start_ns,
            "bytes": timeline.transfer_bytes,
            "critical": _on_path(timeline, "transfer"),
        },
        chores=_chores(timeline),
        memory=tuple(thinned(curve, timeline.runtime_ns) for curve in timeline.memory),
        path_links=_path_links(timeline),
    )


def _channel_labels(problem: Problem, labels: Sequence[str]) -> tuple[str, ...]:
    """Label of each channel: its only link, else its name with short names of devices."""
    cluster = problem.cluster
    channel = cluster.channel_of_link()
    channel_labels = []
    for c, name in enumerate(cluster.channel_names()):
        ends = np.argwhere(channel == c).tolist()
        if len(ends) == 1:
            name = f"{labels[ends[0][0]]} → {labels[ends[0][1]]}"
        for device, label in zip(cluster.devices, labels, strict=True):
            name = name.replace(device.name, label)
        channel_labels.append(name)
    return tuple(channel_labels)


def _chores(timeline: StepTimeline) -> Row:
    """All sends that take time of their device, then all receives."""
    columns = []
    for kind in ("send", "receive"):
        start_ns, end_ns = timeline.times_ns[kind]
        transfer = np.flatnonzero(end_ns > start_ns)
        is_critical = np.isin(transfer, _on_path(timeline, kind))
        device, start_ns, end_ns = (
            values[transfer] for values in (timeline.device_of(kind), start_ns, end_ns)
        )
        columns.append((transfer, device, start_ns, end_ns - start_ns, is_critical))
    *joined, critical = map(np.concatenate, zip(*columns, strict=True))
    names = ("transfer", "device", "start_ns", "duration_ns")
    return {**dict(zip(names, joined, strict=True)), "critical": np.flatnonzero(critical)}


def _on_path(timeline: StepTimeline, kind: str) -> np.ndarray:
    """Positions of the ops, or of the transfers, whose stretches of this kind are on the critical path."""
    return np.array(sorted(s.index for s in timeline.critical_path if s.kind == kind), np.int64)


def _path_links(timeline: StepTimeline) -> tuple[tuple[int, int, int], ...]:
    """Changes of place on the critical path: time, place before, place after."""
    places = []  # (time, place)
    for stretch in timeline.critical_path:
        if stretch.kind == "transfer":
            channel = int(timeline.transfer_channel[stretch.index])
            places.append((stretch.start_ns, timeline.problem.num_devices + channel))
        elif stretch.kind != "hand_over":
            places.append((stretch.start_ns, int(timeline.device_of(stretch.kind)[stretch.index])))
    pairs = itertools.pairwise(places)
    return tuple((time_ns, before, after) for (_, before), (time_ns, after) in pairs if before != after)


def thinned(curve: MemoryCurve, step_ns: int) -> Row:
    """A curve of memory with the most of each of a few hundred slices of the step."""
    slices = np.minimum(curve.times_ns * _SLICES // max(1, step_ns), _SLICES - 1)
    begins = np.flatnonzero(np.diff(slices, prepend=-1))
    ends = [*begins[1:], len(slices)]
    keep = [b + int(curve.num_bytes[b:e].argmax()) for b, e in zip(begins, ends, strict=True)]
    num_bytes = curve.num_bytes
    return {"at_ns": curve.times_ns[keep], "bytes": num_bytes[keep], "peak_bytes": int(num_bytes.max())}


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
    lanes, ends = [0] * len(spans), list[int]()  # the latest end in each lane
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        start, end = spans[i]
        lanes[i] = next((lane for lane, busy_until in enumerate(ends) if busy_until <= start), len(ends))
        ends[lanes[i] : lanes[i] + 1] = [end]
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
        self._takes_time = {kind: end_ns > start_ns for kind, (start_ns, end_ns) in timeline.times_ns.items()}
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
        parts, spans = [part for part in parts if self._takes_time[part[0]][part[1]]], list[Span]()
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
        parts += [("op", reader) for reader in readers.tolist() if self._takes_time["op"][reader]][:1]
        points = []
        for kind, i in (part for part in parts if self._takes_time[part[0]][part[1]]):
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
    """The JSON of a trace: the step as it is simulated and, beside it from the same 0 on, as the runtime traced it.

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
    """Writes one step of a plan as a Chrome trace, whole or not at all: open it with Perfetto or chrome://tracing.

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
