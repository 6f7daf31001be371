"""Content of a report's page, as data: a step drawn for each plan, and the page as one HTML file."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import itertools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.op_facts import VARIABLES
from tf_placer.evaluation.timeline import MemoryCurve, StepTimeline, simulated_timeline
from tf_placer.presentation.chrome_trace import measured_spans
from tf_placer.problem.layers import layers_of_parts
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import CLUSTER, Problem

_FOLDER = pathlib.Path(__file__).parent
_ASSETS, _ECHARTS = _FOLDER / "assets", _FOLDER / "echarts" / "echarts.min.js"
# In the order in which they need each other: constants are made when a script is read.
_SCRIPTS = (
    "format.js",
    "charts.js",
    "step_times.js",
    "lanes.js",
    "timeline.js",
    "timeline_events.js",
    "memory.js",
    "layers.js",
    "transfers.js",
    "progress.js",
    "apply.js",
    "main.js",
)
_SLICES = 400  # of the step, in each of which the page has the most memory in use
_SLOT = re.compile(r"{{(\w+)}}")
# In a script element these could end it, or begin a comment; in JSON they only stand in strings.
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


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
    """A page as one HTML file that needs no network: its data, the charting library and its own code are in it.

    Only the scripts of this package run: the page's own policy names them by their hashes, so text that comes with a
    program can start nothing, and nothing is loaded from anywhere.
    """
    scripts = {"echarts": _ECHARTS.read_text(encoding="utf8")}
    scripts["script"] = "\n".join((_ASSETS / name).read_text(encoding="utf8") for name in _SCRIPTS)
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts.values()]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    # What a program calls its ops cannot leave the strings that it is in.
    data = json.dumps(page, default=_plain, separators=(",", ":"), allow_nan=False).translate(_ESCAPED)
    parts = {
        "policy": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}",
        "title": html.escape(page.title),
        "style": (_ASSETS / "page.css").read_text(encoding="utf8"),
        "data": data,
        **scripts,
    }
    return _SLOT.sub(lambda slot: parts[slot[1]], (_ASSETS / "page.html").read_text(encoding="utf8"))


def _plain(value: Any) -> Any:
    """A dataclass, an array or a number of NumPy, as what JSON has."""
    return vars(value) if dataclasses.is_dataclass(value) else value.tolist()


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
