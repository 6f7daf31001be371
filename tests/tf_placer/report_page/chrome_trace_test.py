"""Traces are what the format wants and say what was measured, in no more rows than spans at once."""

import dataclasses
import itertools
import json
import os
from collections import defaultdict

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.evaluation.random_problems import random_problem
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.runtime import TraceFailed
from tf_placer.evaluation.timeline import simulated_timeline
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.report_page.page import (
    MEASURED_PID,
    SIMULATED_PID,
    Span,
    TraceProcess,
    chrome_trace,
    lanes_of,
    measured_spans,
    write_timeline,
)
from tf_placer.runtime.timing import RuntimeConfig


def events_of(text):
    """The events of a trace, after the rules of the Trace Event Format that Perfetto holds them to have been checked.

    Every event has a phase, a name, a process and a thread, and times in microseconds. Slices of a thread are one in
    another or apart, which ours always are. Metadata names each process and thread once. An arrow has an id of its own
    (with its name and category, whatever the process), begins, goes on and ends in this order, each time in a slice.
    """
    document = json.loads(text)
    assert document["displayTimeUnit"] in ("ms", "ns")
    events = document["traceEvents"]
    rows, named = defaultdict(list), []
    for event in events:
        assert event["ph"] in "XCMstf" and isinstance(event["name"], str) and event["name"]
        assert all(type(event[key]) is int and event[key] >= 0 for key in ("pid", "tid"))
        assert isinstance(event["ts"], int | float) and event["ts"] >= 0
        if event["ph"] == "M":
            if event["name"] in ("process_name", "thread_name"):
                assert isinstance(event["args"]["name"], str) and event["args"]["name"]
                of_thread = event["name"] == "thread_name"
                named.append((event["name"], event["pid"], event["tid"] if of_thread else 0))
            else:
                assert event["name"] in ("process_sort_index", "thread_sort_index")
                assert type(event["args"]["sort_index"]) is int
        elif event["ph"] == "C":
            assert event["args"] and all(isinstance(value, int | float) for value in event["args"].values())
        elif event["ph"] == "X":
            assert event["dur"] > 0 and isinstance(event["cat"], str)
            begin = round(1000 * event["ts"])
            rows[event["pid"], event["tid"]].append((begin, begin + round(1000 * event["dur"])))
    assert len(named) == len(set(named))
    assert rows.keys() <= {(pid, tid) for kind, pid, tid in named if kind == "thread_name"}
    assert {event["pid"] for event in events} == {pid for kind, pid, _ in named if kind == "process_name"}
    for spans in rows.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            arrows[event["cat"], event["name"], event["id"]].append(event)
            moment = round(1000 * event["ts"])
            assert any(begin <= moment < end for begin, end in rows[event["pid"], event["tid"]])
    for arrow in arrows.values():
        assert [e["ph"] for e in arrow] == ["s", *"t" * (len(arrow) - 2), "f"]
        assert len({e["pid"] for e in arrow}) == 1
        assert [e["ts"] for e in arrow] == sorted(e["ts"] for e in arrow)
    return events


def of_kind(events, kind, pid=SIMULATED_PID):
    return [event for event in events if event["ph"] == kind and event["pid"] == pid]


def row_names(events, pid=SIMULATED_PID):
    named = [event for event in of_kind(events, "M", pid) if event["name"] == "thread_name"]
    return {event["tid"]: event["args"]["name"] for event in named}


def test_random_steps():
    arrows = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng)
        placement = Placement(problem, rng.integers(0, problem.num_devices, problem.num_units, np.int32))
        timeline = simulated_timeline(problem, placement.decisions)
        events = events_of(chrome_trace(placement))
        spans = of_kind(events, "X")
        step = [event["dur"] for event in spans if event["cat"] == "step"]
        assert step == ([timeline.runtime_ns / 1000] if timeline.runtime_ns else [])
        names = row_names(events)
        drawn = [e for e in spans if e["cat"] == "op" and names[e["tid"]] != "critical path"]
        assert sorted(e["name"] for e in drawn) == sorted(
            name for name, ns in zip(problem.op_names, timeline.end_ns - timeline.start_ns, strict=True) if ns
        )
        for device, peak in zip(problem.cluster.devices, timeline.peak_bytes, strict=True):
            curve = [e for e in of_kind(events, "C") if e["name"].endswith(device.name.rpartition(":")[2])]
            assert max(event["args"]["bytes"] for event in curve) == peak
        arrows += len(of_kind(events, "s"))
    assert arrows > 100


def test_a_step_by_hand():
    problem = problem_of([100, 50, 50], [[0, 1], [0, 2]], 5, names=["a/x", "a/y", "z"], edge_tensor=[0, 0])
    events = events_of(chrome_trace(Placement(problem, [0, 1, 0])))
    names = row_names(events)
    assert [(names[e["tid"]], e["name"], e["ts"], e["dur"]) for e in of_kind(events, "X")] == [
        ("step", "step of arrays", 0, 0.165), ("critical path", "a/x", 0, 0.1),
        ("critical path", "a/x", 0.1, 0.015), ("critical path", "a/y", 0.115, 0.05),
        ("GPU:0", "a/x", 0, 0.1), ("GPU:0", "z", 0.1, 0.05), ("GPU:1", "a/y", 0.115, 0.05),
        ("link 0to1", "a/x", 0.1, 0.015),
    ]  # fmt: skip
    assert [e["args"] for e in of_kind(events, "X") if names[e["tid"]] in ("GPU:0", "link 0to1")] == [
        {"critical": True, "type": "", "unit": 0, "scope": "a"},
        {"type": "", "unit": 2, "scope": ""},
        {"critical": True, "bytes": 5, "from": "GPU:0", "to": "GPU:1"},
    ]
    arrow = [(e["ph"], names[e["tid"]], e["ts"]) for e in events if e["ph"] in "stf"]
    assert arrow == [("s", "GPU:0", 0.099), ("t", "link 0to1", 0.1), ("f", "GPU:1", 0.115)]


def test_a_device_with_streams_has_a_row_for_each_that_is_used():
    problem = problem_of([10, 20, 30], [], cluster=small_cluster(streams=3))
    names = row_names(events_of(chrome_trace(Placement(problem, [0, 0, 1]))))
    assert [*names.values()] == ["step", "critical path", "GPU:0 (1)", "GPU:0 (2)", "GPU:1"]


def test_write_timeline(tmp_path):
    placement = Placement(problem_of([10, 20], []), [0, 1])
    write_timeline(tmp_path / "timeline.json", placement)
    assert (tmp_path / "timeline.json").read_text() == chrome_trace(placement)
    with pytest.raises(InputError, match="folder that is there"):
        write_timeline(tmp_path / "nowhere" / "timeline.json", placement)


def test_types_are_the_plans_whatever_kernel_ran():
    untyped = problem_of([10, 20], [[0, 1]], names=["a", "loop"])
    problem = dataclasses.replace(untyped, op_types=("MatMul", "While"))
    measured = tf.compat.v1.RunMetadata()
    device = measured.step_stats.dev_stats.add(device="GPU:0")
    kernels = (("a", "_MklMatMul"), ("loop/body/b", "_FusedMatMul"), ("elsewhere", "_SwitchN"))
    for start, (name, kernel) in enumerate(kernels, 1):
        times = {"all_start_nanos": start, "op_start_rel_nanos": 5, "op_end_rel_nanos": 9}
        device.node_stats.add(node_name=name, timeline_label=f"{name} = {kernel}(x, y)", **times)
    spans = of_kind(events_of(chrome_trace(Placement(problem, [0, 1]), measured)), "X", MEASURED_PID)
    assert {span["name"]: (span["args"]["type"], span["args"].get("unit")) for span in spans} == {
        "a": ("MatMul", 0),
        "loop/body/b": ("While", 1),
        "elsewhere": ("_SwitchN", None),
    }
    assert measured_spans(problem, measured).tolist() == [[0, 4], [1, 5]]


def test_a_cluster_is_a_span_in_both_processes_that_says_how_many_ops_it_is():
    problem = problem_of([100, 200, 50], [[0, 1], [1, 2]], names=["a/x", "a/y", "z"])
    measured = tf.compat.v1.RunMetadata()
    times = {"all_start_nanos": 5, "op_start_rel_nanos": 0, "op_end_rel_nanos": 9}
    device = measured.step_stats.dev_stats.add(device="GPU:0")
    device.node_stats.add(node_name="fused_cluster_0", timeline_label="fused_cluster_0", **times)
    events = events_of(chrome_trace(Placement(problem, [0, 0, 0], None, [0, 0, -1]), measured))
    spans = [of_kind(events, "X", pid) for pid in (SIMULATED_PID, MEASURED_PID)]
    told, ran = ({span["name"]: span["args"].get("type") for span in of_pid} for of_pid in spans)
    assert told["a/fused_cluster_0"] == ran["fused_cluster_0"] == "fused, 2 ops"
    assert "a/x" not in told and "z" in told


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_a_step_on_two_workers_stands_beside_the_simulated_one(warm_workers, tmp_path):
    def program(x):
        return tf.reduce_sum(tf.matmul(tf.matmul(x, x, name="block/here"), x, name="block/there"))

    item = Item.from_function(tf.function(program), tf.ones([64, 64]))
    problem = analytic_problem(item, warm_workers.cluster)
    device_of_unit = np.zeros(problem.num_units, np.int32)
    device_of_unit[problem.unit_of_op[item.index.names.index("block/there")]] = 1
    evaluator = warm_workers.evaluator(item, problem, RuntimeConfig(warmup_steps=1, deadline_s=60.0))
    write_timeline(tmp_path / "timeline.json", Placement(problem, device_of_unit), evaluator)
    events = events_of((tmp_path / "timeline.json").read_text())
    names, spans = row_names(events, MEASURED_PID), of_kind(events, "X", MEASURED_PID)
    workers = problem.cluster.labels
    row_of = {span["name"]: names[span["tid"]] for span in spans if span["cat"] == "op"}
    assert row_of["block/here"].startswith(workers[0]) and row_of["block/there"].startswith(workers[1])
    [there] = [span for span in spans if (span["name"], span["cat"]) == ("block/there", "op")]
    assert there["args"]["type"] == "MatMul" and there["args"]["scope"] == "block"
    assert there["args"]["unit"] == problem.unit_of_op[item.index.names.index("block/there")]
    crossed, targets = set(), {device.name for device in problem.cluster.devices}
    for _ in range(20):  # the runtime leaves now and then out of a trace what a worker received
        crossed |= {span["args"]["to"] for span in spans if span["cat"] == "transfer"}
        if crossed == targets:
            break
        write_timeline(tmp_path / "again.json", Placement(problem, device_of_unit), evaluator)
        spans = of_kind(events_of((tmp_path / "again.json").read_text()), "X", MEASURED_PID)
    assert crossed == targets
    assert min(span["ts"] for span in spans) < 1000  # from the same 0 on as the simulated step
    assert {event["pid"] for event in events} == {SIMULATED_PID, MEASURED_PID}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_a_plan_that_does_not_run_writes_nothing(warm_workers, tmp_path):
    def program(x):
        return tf.reduce_sum(tf.debugging.check_numerics(x, "no number"))

    item = Item.from_function(tf.function(program), tf.fill([4], np.nan))
    problem = analytic_problem(item, warm_workers.cluster)
    evaluator = warm_workers.evaluator(item, problem, RuntimeConfig(deadline_s=60.0))
    with pytest.raises(TraceFailed, match="no number"):
        write_timeline(tmp_path / "timeline.json", Placement(problem, problem.everything_on(0)), evaluator)
    assert not [*tmp_path.iterdir()]


def test_lanes_by_hand():
    # The third begins as the first ends; the fourth while two are open.
    assert lanes_of([(0, 4), (1, 9), (4, 6), (5, 7)]) == [0, 1, 0, 2]
    assert lanes_of([]) == []


def test_lanes_of_random_spans():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        starts = rng.integers(0, 20, 30)
        spans = list(zip(starts.tolist(), (starts + rng.integers(1, 9, 30)).tolist(), strict=True))
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
    assert [*row_names(process.events, 7).values()] == ["GPU:0 (1)", "GPU:0 (2)"]
    assert [(e["ts"], e["dur"], e["tid"]) for e in by_kind["X"]] == [(0, 1.5, rows[0]), (0.5, 0.2, rows[1])]
    assert by_kind["X"][1]["args"] == {"unit": 3}
    assert [(e["ts"], e["args"]) for e in by_kind["C"]] == [(0, {"bytes": 10}), (1.5, {"bytes": 0})]
    [begin], [end] = by_kind["s"], by_kind["f"]
    assert begin["id"] == end["id"] and (begin["ts"], end["ts"]) == (1.499, 1.6) and end["bp"] == "e"
    assert {event["pid"] for event in process.events} == {7}
