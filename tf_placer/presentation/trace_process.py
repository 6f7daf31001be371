"""One process of a Chrome trace: rows of spans, counters and arrows, as the events that the format wants.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event Format").
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Event = dict[str, Any]


class Span(NamedTuple):
    """Something that runs from its start to its end, in nanoseconds since the step began."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class TraceProcess:
    """Collects the events of one process.

    process = TraceProcess(1, "simulated")
    rows = process.add_spans("GPU:0", spans)  # one row, or as many as run at once
    process.add_arrow([(rows[0], spans[0].end_ns - 1), (rows[1], spans[1].start_ns)])
    process.events
    """

    def __init__(self, pid: int, name: str) -> None:
        self._pid = pid
        self._num_rows = 0
        self._num_arrows = 0
        self.events: list[Event] = []
        self._add_metadata("process_name", 0, {"name": name})
        self._add_metadata("process_sort_index", 0, {"sort_index": pid})

    def add_spans(self, row_name: str, spans: Sequence[Span]) -> list[int]:
        """Draws spans that take time in one row, or, where several run at once, in a row for each of them.

        Returns:
          The row of each span.
        """
        lanes = lanes_of([(span.start_ns, span.end_ns) for span in spans])
        count = max(lanes, default=0) + 1
        rows = [
            self._add_row(row_name if count == 1 else f"{row_name} ({lane + 1})") for lane in range(count)
        ]
        for span, lane in zip(spans, lanes, strict=True):
            self.events.append(
                {
                    "name": span.name,
                    "cat": span.category,
                    "ph": "X",
                    "ts": _us(span.start_ns),
                    "dur": _us(span.end_ns - span.start_ns),
                    "pid": self._pid,
                    "tid": rows[lane],
                    "args": span.args,
                }
            )
        return [rows[lane] for lane in lanes]

    def add_counter(self, name: str, unit: str, points: Iterable[tuple[int, int]]) -> None:
        """Draws a curve through (nanoseconds, value): each value holds until the next."""
        self.events += [
            {
                "name": name,
                "ph": "C",
                "ts": _us(at_ns),
                "pid": self._pid,
                "tid": 0,
                "args": {unit: value},
            }
            for at_ns, value in points
        ]

    def add_arrow(self, name: str, points: Sequence[tuple[int, int]]) -> None:
        """Draws arrows from span to span: (row, nanoseconds) inside each of at least two, in the order of time."""
        self._num_arrows += 1
        for position, (row, at_ns) in enumerate(points):
            event = {
                "name": name,
                "cat": "crosses",
                "ph": "s" if position == 0 else "f" if position == len(points) - 1 else "t",
                "id": self._num_arrows,
                "ts": _us(at_ns),
                "pid": self._pid,
                "tid": row,
            }
            # Else an arrow ends at the next span of the row and not at the one that it points into.
            self.events.append(event | ({"bp": "e"} if event["ph"] == "f" else {}))

    def _add_row(self, name: str) -> int:
        self._num_rows += 1
        self._add_metadata("thread_name", self._num_rows, {"name": name})
        self._add_metadata("thread_sort_index", self._num_rows, {"sort_index": self._num_rows})
        return self._num_rows

    def _add_metadata(self, name: str, row: int, args: dict[str, Any]) -> None:
        self.events.append({"name": name, "ph": "M", "ts": 0, "pid": self._pid, "tid": row, "args": args})


def lanes_of(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The lane of each (start, end), so that no two in a lane overlap: the lowest that is free as it starts.

    There are as many lanes as spans that are open at once.
    """
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


def scope_of(name: str) -> str:
    """The name scope of an op: what stands before its last slash."""
    return name.rpartition("/")[0]


def _us(time_ns: int) -> float:
    return int(time_ns) / 1000
