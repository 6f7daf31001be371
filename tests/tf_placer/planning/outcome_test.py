"""Records of plans, their files, and plans by layer from the command line."""

import dataclasses
import io
import json
import pathlib

import numpy as np
import pytest
import rich.console

from tests.tf_placer.problem.small_problems import branches_problem
from tests.tf_placer.report_page.drawn_pages import layered_problem, striped
from tests.tf_placer.search.other_machine import OtherMachine, live
from tf_placer import workloads
from tf_placer.__main__ import run
from tf_placer.automatic.plan import as_json, from_json, lasting
from tf_placer.calibration.refit import Correction
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import (
    AS_IT_IS,
    PLAN,
    SINGLE,
    Clock,
    Kept,
    Note,
    Outcome,
    Timed,
    fastest,
    in_layers,
)
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.layers import layer_of_unit, layers_of
from tf_placer.problem.placement import NO_CLUSTER, Placement
from tf_placer.problem.problem import Problem
from tf_placer.report.sentences import verdict
from tf_placer.report.views import summary
from tf_placer.search.search import search

PLACEMENT, CORRECTION = striped(layered_problem(40)), Correction(compute=2.0)


def kept_outcome() -> Outcome:
    """A function's plan with something in every field that is kept."""
    times = {"simulated_s": 0.3, "measured_s": 0.35, "raced_s": 0.2, "spread_s": (0.19, 0.22)}
    outcome = Outcome(
        Form(CORRECTION.apply(PLACEMENT.problem)),
        Timed.simulated("local_search", PLACEMENT, **times, is_clear=False),
        (
            Timed(AS_IT_IS, raced_s=0.1, spread_s=(0.09, 0.11)),
            Timed("split", PLACEMENT, raced_s=0.4, search_s=3.0),
            Timed(SINGLE, simulated_s=0.5, measured_s=0.45),
        ),
        notes={
            Note.WHY: "clearly faster",
            Note.DECIDED: "local_search",
            Note.BESIDE_UNPLACED: "not clearly faster",
            Note.WHY_NOT_SPLIT: "The batch is not split: it has no examples.",
            Note.LOAD: 0.25,
            Note.TIMED_AT_S: 1.7e9,
        },
        correction=CORRECTION,
    )
    return lasting(outcome, Kept({"graph": "f"}, (("auto", 5.0, 3.0),), [["auto, search 1", [0.5], [0.3]]]))


def test_a_functions_plan_comes_back_from_its_file_as_it_was():
    plan = kept_outcome()
    data = json.loads(json.dumps(as_json(plan)))
    found = from_json(Form(PLACEMENT.problem), data, plan.kept.key)
    assert json.loads(json.dumps(as_json(found))) == data
    assert found.placement.device_of_unit.tolist() == PLACEMENT.device_of_unit.tolist()
    assert found.written.peak_bytes == plan.written.peak_bytes and found.is_from_cache
    assert [row.name for row in found.beside] == [SINGLE, AS_IT_IS, "split"]
    assert Note.DECIDED not in found.notes
    assert found.written.spread_s == (0.19, 0.22) and not found.is_worth_it
    assert (found.written.name, found.written.measured_s) == (PLAN, 0.35)
    assert found.named(SINGLE).simulated_s == 0.5
    assert found.named(AS_IT_IS).raced_s == 0.1 and found.named("split").raced_s == 0.4
    assert (found.notes[Note.LOAD], found.notes[Note.TIMED_AT_S]) == (0.25, 1.7e9)
    assert found.kept.searched == (("auto", 5.0, 3.0),) and found.kept.key == {"graph": "f"}
    assert (found.problem.compute_ns == 2 * PLACEMENT.problem.compute_ns).all(), "as its times are predicted"


def test_calls_of_a_user_have_the_last_word_and_a_clock_of_their_own():
    raced = kept_outcome()
    tried = raced.tried(True, 0.1, 0.2).tried(True, 0.3, 0.4, load=0.5)
    assert (tried.written.called_s, tried.named(AS_IT_IS).called_s, tried.notes[Note.LOAD]) == (0.3, 0.4, 0.5)
    assert (tried.written.raced_s, tried.named(AS_IT_IS).raced_s) == (0.2, 0.1), "of another clock"
    assert tried.clock is Clock.CALLED and tried.is_worth_it and not raced.is_worth_it
    assert tried.gain.saved == pytest.approx(0.25) and tried.gain.is_clear


@pytest.mark.parametrize(
    "change",
    [{"rows": {PLAN: {}}}, {"peak_bytes": [1]}, {"notes": {"mood": ""}}, {"decided": {}}, {"searched": [1]}],
)
def test_a_damaged_file_is_no_plan(change):
    data = json.loads(json.dumps(as_json(kept_outcome()))) | change
    with pytest.raises((LookupError, ValueError, TypeError)):
        from_json(Form(PLACEMENT.problem), data, {})


@pytest.mark.parametrize("times", [(0.3, 0.1, 0.2), (0.2, 0.3, 0.1)])
def test_times_of_different_clocks_are_never_compared(times):
    simulated, alone, raced = times
    rows = [
        Timed("a", PLACEMENT, simulated_s=simulated, measured_s=alone, raced_s=raced),
        Timed("b", PLACEMENT, simulated_s=0.01, measured_s=0.25, raced_s=0.5),
        Timed("c", PLACEMENT, simulated_s=0.02, measured_s=0.05),
        Timed(SINGLE, PLACEMENT, simulated_s=0.4, measured_s=0.35, raced_s=0.3),
    ]
    found = Outcome(Form(PLACEMENT.problem), rows[0], tuple(rows[1:]))
    assert fastest(rows) is rows[0], "c was not in the race, and b is behind in it"
    assert [row.name for row in found.rows] == ["a", SINGLE, "b", "c"]
    assert (found.gain.plan_s, found.gain.rival_s, found.gain.clock) == (raced, 0.3, Clock.RACED)


def test_another_candidate_is_written_and_stays_what_was_decided():
    one, two = Timed("one", PLACEMENT), Timed("two", PLACEMENT)
    found = Outcome(Form(PLACEMENT.problem), one, (two,), notes={Note.DECIDED: "one"})
    other = found.with_written(two)
    assert (other.written, other.beside, other.recommended) == (two, (one,), one)
    changed = dataclasses.replace(one, message="traced")
    assert found.with_written(one, changed).recommended is changed


SOURCE = ("--workload=two_towers", "--cluster=k40x2")
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def command(*argv: str) -> tuple[int, str]:
    console = rich.console.Console(file=io.StringIO(), width=200)
    return run(argv, console), console.file.getvalue()


@pytest.fixture(scope="module")
def problem() -> Problem:
    return analytic_problem(workloads.build("two_towers"), Cluster.preset("k40x2"))


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, str]:
    out = tmp_path_factory.mktemp("by_layer")
    argv = ("place", *SOURCE, "--method=random", "--budget_evaluations=64", "--write=method", "--by=layer")
    status, text = command(*argv, f"--out={out}")
    assert status == 0, text
    return out, text


@pytest.mark.medium
def test_place_writes_whole_layers_and_says_what_they_cost(placed, problem):
    out, text = placed
    told = json.loads((out / "summary.json").read_text())
    plan = json.loads((out / "placement.json").read_text())
    assert len(plan["layers"]) <= 30 and "functional" in plan["layers"]
    placement = Placement.load(out / "placement.json", problem)
    simulated = SimulatedEvaluator(problem).evaluate(placement.decisions)
    assert simulated.runtime_s[0] == pytest.approx(told["by_layer_s"])
    home, free = layer_of_unit(problem, layers_of(problem)), problem.allowed.all(axis=1)
    assert told["layers"] == len(set(home.tolist()))
    for layer in set(home.tolist()):
        assert len(set(placement.device_of_unit[free & (home == layer)].tolist())) <= 1
    slower = told["by_layer_s"] / told["by_op_s"] - 1
    assert told["runtime_s"] == told["by_layer_s"]
    words = "more" if slower > 0 else "less"
    assert f"With whole layers ({told['layers']} of them) the step takes" in text
    assert f"{abs(100 * slower):.1f}% {words} than with a place for every op" in text
    assert "│ functional/dense_16 " in text


@pytest.mark.medium
def test_an_edited_line_is_applied_and_explained(placed, tmp_path, problem):
    plan = json.loads((placed[0] / "placement.json").read_text())
    plan["layers"]["functional/dense_16"] = CPU
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(plan))
    out = tmp_path / "out"
    status, text = command("place", *SOURCE, f"--plan={file}", f"--out={out}", "--by=layer")
    assert status == 0, text
    assert "The plan given is written by layer" in " ".join(text.split())
    again = Placement.load(out / "placement.json", problem)
    assert again.device_of_unit.tolist() == Placement.load(file, problem).device_of_unit.tolist()
    assert json.loads((out / "summary.json").read_text())["by_layer_s"] is None
    layers = layers_of(problem)
    moved = layer_of_unit(problem, layers) == layers.names.index("functional/dense_16")
    assert (again.device_of_unit[moved] == 2).all()
    status, text = command("explain", f"--plan={file}", "--layer=functional/dense_16")
    assert status == 0, text
    assert f"ops are on {CPU}" in text and "as planned" in text
    assert "It sends" in text and "It receives" in text
    assert text.count("device:GPU") >= 2


@pytest.mark.medium
def test_a_layer_around_others_is_explained_with_them(placed):
    status, text = command("explain", f"--plan={placed[0] / 'placement.json'}", "--layer=functional")
    assert status == 0, text
    assert "Layers inside it: " in text and " more." in text


@pytest.mark.medium
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--layer=functional/dense_99"], "has no such layer; did you mean"),
        (["--layer=functional", "--op=x"], "--op and --layer are given; give one of them"),
        ([], "needs --op or --layer"),
    ],
)
def test_what_cannot_be_explained_is_one_line(placed, capsys, argv, message):
    status, _ = command("explain", f"--plan={placed[0] / 'placement.json'}", *argv)
    error = capsys.readouterr().err
    assert status == 2 and message in error and len(error.splitlines()) == 1


@pytest.mark.medium
def test_a_line_of_an_unknown_layer_is_one_line(placed, tmp_path, capsys, problem):
    plan = json.loads((placed[0] / "placement.json").read_text())
    plan["layers"]["functional/dense_99"] = CPU
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(plan))
    status, _ = command("place", *SOURCE, f"--plan={file}", f"--out={tmp_path / 'out'}")
    error = capsys.readouterr().err
    assert status == 2 and "'functional/dense_99'" in error and len(error.splitlines()) == 1
    status, text = command(
        "place", *SOURCE, f"--plan={file}", "--complete_plan", "--method=single", f"--out={tmp_path / 'out'}"
    )
    assert status == 0, text
    assert f"says where {problem.num_ops} of {problem.num_ops} ops go" in text


def test_compare_writes_layers_too(tmp_path):
    argv = ("compare", *SOURCE, "--methods=single,list_schedule", "--by=layer", f"--out={tmp_path}")
    status, text = command(*argv)
    assert status == 0, text
    assert "With whole layers" in text
    assert json.loads((tmp_path / "placement.json").read_text())["schema_version"] == 3


@pytest.mark.medium
def test_whole_layers_have_no_order_and_no_clusters_and_that_is_said(problem):
    chosen = Timed.of_search("random", search(problem, "random", budget_evaluations=4))
    clusters = np.full(problem.num_ops, NO_CLUSTER)
    clusters[0] = 0
    plan = Placement(problem, chosen.placement.device_of_unit, np.arange(problem.num_ops), clusters)
    report = in_layers(Outcome(Form(problem), dataclasses.replace(chosen, placement=plan)), seed=0)
    text = "Whole layers are another plan, without the order and the clusters of that of single"
    assert text in verdict(report)
    (step_s,) = SimulatedEvaluator(problem).evaluate(plan.decisions).runtime_s
    assert report.by_layer.whole.op_level_s == step_s


@pytest.mark.medium
def test_on_live_devices_what_layers_cost_is_said_to_be_simulated():
    problem = branches_problem(4, 6)
    names = [f"layer_{op % 4}/op_{op}" for op in range(problem.num_ops)]
    problem = dataclasses.replace(problem, op_names=tuple(names))
    report = in_layers(live(problem, OtherMachine(problem)), seed=0)
    assert report.by_layer is not None and report.by_layer.whole is not None
    assert "\nIn the simulator, with whole layers (4 of them)" in verdict(report)
    assert summary(report)["by_layer_s"] == report.by_layer.whole.runtime_s
    assert report.placement.problem is report.search.placement.problem
    on = report.placement.device_of_op
    assert all(len(np.unique(on[layer::4])) == 1 for layer in range(4))
