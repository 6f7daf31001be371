"""Rows hold spans that do not overlap, and no more rows than spans at once."""

import numpy as np

from tf_placer.presentation.chrome_trace import Span, TraceProcess, lanes_of, scope_of


def test_lanes_by_hand():
    # The third begins as the first ends; the fourth while two are open.
    assert lanes_of([(0, 4), (1, 9), (4, 6), (5, 7)]) == [0, 1, 0, 2]
    assert lanes_of([]) == []


def test_lanes_of_random_spans():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        starts = rng.integers(0, 20, 30)
        spans = [
            (int(start), int(start + length))
            for start, length in zip(starts, rng.integers(1, 9, 30), strict=True)
        ]
        lanes = lanes_of(spans)
        open_at = [sum(start <= moment < end for start, end in spans) for moment in range(30)]
        assert max(lanes) + 1 == max(open_at)
        for moment in range(30):
            inside = [lane for lane, (start, end) in zip(lanes, spans, strict=True) if start <= moment < end]
            assert len(set(inside)) == len(inside), seed


def test_events_of_a_process():
    process = TraceProcess(7, "simulated")
    rows = process.add_spans("GPU:0", [Span("a", "op", 0, 1500, {}), Span("b", "op", 500, 700, {"unit": 3})])
    process.add_counter("memory", "bytes", [(0, 10), (1500, 0)])
    process.add_arrow("a", [(rows[0], 1499), (rows[1], 1600)])
    by_kind = {kind: [e for e in process.events if e["ph"] == kind] for kind in "MXCsf"}
    assert [e["args"]["name"] for e in by_kind["M"] if e["name"] == "thread_name"] == [
        "GPU:0 (1)",
        "GPU:0 (2)",
    ]
    assert [(e["ts"], e["dur"], e["tid"]) for e in by_kind["X"]] == [(0, 1.5, rows[0]), (0.5, 0.2, rows[1])]
    assert by_kind["X"][1]["args"] == {"unit": 3}
    assert [(e["ts"], e["args"]) for e in by_kind["C"]] == [(0, {"bytes": 10}), (1.5, {"bytes": 0})]
    [begin], [end] = by_kind["s"], by_kind["f"]
    assert begin["id"] == end["id"] and (begin["ts"], end["ts"]) == (1.499, 1.6) and end["bp"] == "e"
    assert {event["pid"] for event in process.events} == {7}


def test_scopes():
    assert [scope_of(name) for name in ("a/b/c", "c", "")] == ["a/b", "", ""]
