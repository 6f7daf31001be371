"""Content of a report's page, as data; filled by every command that has a plan to report."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import html
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

# One step of a plan as tables: spans on devices and links, memory, layers.


@dataclasses.dataclass(frozen=True)
class DeviceView:
    """A device: what it is called on the page, and the memory that it has."""

    label: str
    name: str
    capacity_bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class OpTable:
    """The N ops."""

    # scope, leaf: [N] their names in two parts: position in ``StepView.scopes``, and what follows it
    scope: np.ndarray
    leaf: tuple[str, ...]
    type: np.ndarray  # [N] positions, as of ``layer`` and ``device``
    layer: np.ndarray
    device: np.ndarray
    part: np.ndarray  # [N] the part of the batch that the op is a copy for, from 0 on; -1 where it is none
    # [N] what bounds the op: compute, memory, launch;
    # None where the work of ops is not known
    limit: np.ndarray | None
    start_ns: np.ndarray  # [N], as ``duration_ns``
    duration_ns: np.ndarray
    measured_start_ns: np.ndarray  # [N] of a step on the runtime, or [0]; no duration of what has no kernel
    measured_duration_ns: np.ndarray
    output_bytes: np.ndarray  # [N] of all that the op puts out
    resident_bytes: np.ndarray  # [N] of variables; of a unit it is counted at one op
    critical: np.ndarray  # positions of ops on the critical path
    fused: np.ndarray  # positions of clusters; the type of one says how many ops it is


@dataclasses.dataclass(frozen=True, eq=False)
class TransferTable:
    """The X transfers."""

    op: np.ndarray  # [X] producers
    source: np.ndarray  # [X] positions of devices and channels, as of ``target`` and ``channel``
    target: np.ndarray
    channel: np.ndarray
    start_ns: np.ndarray  # [X], as ``duration_ns`` and ``bytes``
    duration_ns: np.ndarray
    bytes: np.ndarray
    critical: np.ndarray  # positions of transfers on the critical path


@dataclasses.dataclass(frozen=True, eq=False)
class ChoreTable:
    """Transfer work of the devices themselves, where hardware does not do it: the Y sends and receives."""

    transfer: np.ndarray  # [Y] positions, as of ``device``
    device: np.ndarray
    start_ns: np.ndarray  # [Y], as ``duration_ns``
    duration_ns: np.ndarray
    critical: np.ndarray  # positions of those on the critical path


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryView:
    """Memory of one device: ``bytes[i]`` [M] from ``at_ns[i]`` [M] on; thinned, but for the peak."""

    at_ns: np.ndarray
    bytes: np.ndarray
    peak_bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class StepView:
    """One step of a plan."""

    step_ns: int  # how long it takes
    bound_by: tuple[tuple[str, float], ...]  # what bounds the critical path, and its share of the step
    peak_share: float | None  # FLOPs, of what the devices with ops could do in that time
    devices: tuple[DeviceView, ...]  # [D]
    channels: tuple[str, ...]  # names of the links' channels
    parts: int  # of the batch; 1 where it is whole
    types: tuple[str, ...]  # of ops
    scopes: tuple[str, ...]  # beginnings of names of ops
    # layer_name, layer_parent: [L] layers; the parent is a position before the layer's own, -1 for none
    layer_name: tuple[str, ...]
    layer_parent: np.ndarray
    ops: OpTable
    transfers: TransferTable
    chores: ChoreTable
    memory: tuple[MemoryView, ...]  # [D]
    # (nanoseconds, place, place) where the critical path changes its place: a device, or the number of devices and a
    # channel
    path_links: tuple[tuple[int, int, int], ...]


Row = Mapping[str, Any]
"""A row of a table or a chart, as JSON has it."""


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


# A page as one HTML file that needs no network: its data, the charting library and its own code are in it.

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
_SLOT = re.compile(r"{{(\w+)}}")
# In a script element these could end it, or begin a comment; in JSON they only stand in strings.
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page_html(page: Page) -> str:
    """The whole file.

    Only the scripts of this package run: the page's own policy names them by their hashes, so text that comes with a
    program can start nothing, and nothing is loaded from anywhere.
    """
    scripts = {"echarts": _asset(_ECHARTS), "script": "\n".join(_asset(_ASSETS / name) for name in _SCRIPTS)}
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts.values()]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    # What a program calls its ops cannot leave the strings that it is in.
    data = json.dumps(_plain(page), separators=(",", ":"), allow_nan=False).translate(_ESCAPED)
    parts = {
        "policy": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}",
        "title": html.escape(page.title),
        "style": _asset(_ASSETS / "page.css"),
        "data": data,
        **scripts,
    }
    return _SLOT.sub(lambda slot: parts[slot[1]], _asset(_ASSETS / "page.html"))


def _plain(value: Any) -> Any:
    """A dataclass with all its content, as JSON."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


@functools.cache
def _asset(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf8")
