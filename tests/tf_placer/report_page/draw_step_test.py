"""A page is one file that shows of a step what the simulator says of it, whatever ops are called."""

import base64
import dataclasses
import hashlib
import html
import json
import re

import numpy as np
import pytest

from tests.tf_placer.evaluation.random_problems import random_problem
from tests.tf_placer.report_page.drawn_pages import HOSTILE, layered_problem, page_of, striped
from tf_placer import workloads
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.evaluation.timeline import MemoryCurve
from tf_placer.problem.placement import NO_CLUSTER, Decisions, Placement
from tf_placer.report_page.page import chrome_trace, draw_step, page_html, thinned
from tf_placer.transform.split import split_program
from tf_placer.transform.split.plans import data_parallel_plan


@pytest.fixture(scope="module")
def problem():
    return layered_problem(400)


@pytest.fixture(scope="module")
def view(problem):
    return draw_step(problem, striped(problem).decisions)


def test_times_and_peaks_are_those_of_the_simulator(problem, view):
    measured = SimulatedEvaluator(problem).evaluate(striped(problem).decisions)
    assert view.step_ns / 1e9 == measured.runtime_s[0]
    assert [curve["peak_bytes"] for curve in view.memory] == measured.peak_bytes[0].tolist()
    assert [curve["bytes"].max() for curve in view.memory] == measured.peak_bytes[0].tolist()
    ends_ns = view.ops["start_ns"] + view.ops["duration_ns"]
    assert ends_ns.max() == view.step_ns


def test_names_come_in_two_parts_and_make_the_whole(problem, view):
    scopes = [view.scopes[i] for i in view.ops["scope"]]
    assert tuple(a + b for a, b in zip(scopes, view.ops["leaf"], strict=True)) == problem.op_names
    assert len(view.scopes) < problem.num_ops / 10


def test_bytes_add_up_to_those_of_the_problem(problem, view):
    assert view.ops["resident_bytes"].sum() == problem.resident_bytes.sum()
    assert view.ops["output_bytes"].sum() == problem.tensor_bytes.sum()


def test_the_critical_path_has_no_gap_but_for_handing_over(problem, view):
    busy_ns = sum(table["duration_ns"][table["critical"]].sum() for table in (view.ops, view.transfers))
    of_path = view.transfers["critical"]
    link_ns = problem.cluster.link_tensor_ns()
    handed_over_ns = link_ns[view.transfers["source"][of_path], view.transfers["target"][of_path]]
    assert (handed_over_ns > 0).any(), "the page shows a crossing that is waited for"
    assert busy_ns + handed_over_ns.sum() == view.step_ns
    crossing = {tuple(sorted(link[1:])) for link in view.path_links}
    assert all(a < 3 <= b for a, b in crossing), "it goes through channels, from and to devices"


def test_a_cluster_is_one_box_that_says_how_many_ops_it_is(problem):
    """Ops 5 to 16 are of layer_0, on one device."""
    plan = striped(problem)
    clusters = np.full(problem.num_ops, NO_CLUSTER)
    clusters[5:17] = 0
    view = draw_step(problem, dataclasses.replace(plan, cluster_of_op=clusters).decisions)
    [fused] = view.ops["fused"].tolist()
    assert len(view.ops["leaf"]) == problem.num_ops - 11
    assert view.types[view.ops["type"][fused]] == "fused, 12 ops"
    assert view.scopes[view.ops["scope"][fused]] + view.ops["leaf"][fused] == "model/layer_0/fused_cluster_0"
    assert view.layer_name[view.ops["layer"][fused]] == "layer_0"
    assert view.ops["resident_bytes"].sum() == problem.resident_bytes.sum()
    assert not len(draw_step(problem, plan.decisions).ops["fused"])


def test_layers_stand_behind_those_around_them(view):
    assert all(parent < layer for layer, parent in enumerate(view.layer_parent))
    assert set(view.layer_name) >= {"model", "layer_3"}


def test_sends_and_receives_are_chores_of_their_devices():
    rng = np.random.default_rng(1)
    seen = 0
    for _ in range(30):
        problem = random_problem(rng)
        row = rng.integers(0, problem.num_devices, (1, problem.num_units)).astype(np.int32)
        view = draw_step(problem, Decisions(row))
        ends = np.stack([view.transfers["source"], view.transfers["target"]])[:, view.chores["transfer"]]
        assert (view.chores["device"] == ends).any(axis=0).all()
        assert (view.chores["duration_ns"] > 0).all()
        seen += len(view.chores["critical"])
    assert seen > 0


def test_a_thinned_curve_keeps_the_peak_of_every_slice():
    times_ns = np.arange(100_000)
    used = np.random.default_rng(0).integers(0, 10**9, 100_000)
    view = thinned(MemoryCurve(times_ns, used), 100_000)
    assert len(view["at_ns"]) == 400 and view["peak_bytes"] == used.max()
    assert view["bytes"].tolist() == used.reshape(400, 250).max(axis=1).tolist()


def test_a_copy_is_shown_with_its_part(view):
    problem = build_problem(split_program(workloads.build("dense_small"), 2).item, Cluster.preset("p100x2"))
    row = data_parallel_plan(problem, (0, 1))
    shown = draw_step(problem, Decisions([row]))
    assert shown.parts == 2 and view.parts == 1 and set(view.ops["part"].tolist()) == {-1}
    for name, part in zip(problem.op_names, shown.ops["part"].tolist(), strict=True):
        assert name.startswith(f"part_{part}/") if part >= 0 else not name.startswith("part_")
    assert {0, 1, -1} == set(shown.ops["part"].tolist())
    events = json.loads(chrome_trace(Placement(problem, row)))["traceEvents"]
    told = {event["name"]: event["args"].get("part") for event in events if event.get("cat") == "op"}
    assert set(told.values()) == {0, 1, None}
    assert all(part is None or name.startswith(f"part_{part}/") for name, part in told.items())


_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)


@pytest.fixture(scope="module")
def text() -> str:
    return page_html(page_of(layered_problem(40)))


def test_the_data_is_what_went_in(text):
    attributes, data = _SCRIPT.findall(text)[0]
    assert 'type="application/json"' in attributes
    section = json.loads(data)["sections"][0]
    assert section["notes"] == [f"A note about {HOSTILE}"]
    ops = section["plan"]["ops"]
    assert section["plan"]["scopes"][ops["scope"][1]] + ops["leaf"][1] == f"model/layer_0/{HOSTILE}"


def test_no_name_ends_a_script_or_begins_one(text):
    assert len(_SCRIPT.findall(text)) == 3, "data, library, page"
    assert not set("<>&") & set(_SCRIPT.findall(text)[0][1])
    assert f"<title>{html.escape('layered <b> on k40x2')}</title>" in text


def test_only_scripts_of_the_package_may_run(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    directives = dict(part.split(maxsplit=1) for part in policy[1].split("; "))
    assert directives["default-src"] == "'none'"
    allowed = {word.removeprefix("'sha256-").removesuffix("'") for word in directives["script-src"].split()}
    for _, script in _SCRIPT.findall(text)[1:]:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in allowed


def test_nothing_that_is_shown_goes_in_as_html(text):
    own = _SCRIPT.findall(text)[2][1]
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b", own)


def test_a_large_program_stays_below_four_megabytes():
    assert len(page_html(page_of(layered_problem(12_000))).encode()) < 4e6
