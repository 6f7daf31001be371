"""What `place` does with the devices that a graph asks for, with orders and clusters, and with the batch split."""

import copy
import dataclasses
import io
import json
import pathlib
import time
from typing import Any

import numpy as np
import pytest
import rich.console
import tensorflow as tf

from tests.tf_placer.command_line.commands import command, devices_in, printed_by, written
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer import workloads
from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import milliseconds
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line import place as placing
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.evaluation.simulated import Status
from tf_placer.planning import find
from tf_placer.planning.forms import Form
from tf_placer.planning.log import begins_at
from tf_placer.planning.outcome import DATA_PARALLEL, Note, Outcome, Timed
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.report.sentences import split_batch_sentences
from tf_placer.report.views import META_GRAPH, print_report, summary
from tf_placer.search.methods import Budget
from tf_placer.search.recorder import SearchResult
from tf_placer.search.search import search
from tf_placer.transform.fusion import RULES

# Two GPUs that small ops are worth sending between: no time of the host for a kernel or a tensor.
_FAST_HOST = """
[[device]]
name = ["GPU:0", "GPU:1"]
model = "p100"
dispatch_ns = 0
[[link]]
source = "GPU:0"
target = "GPU:1"
latency_ns = 1_000
bytes_per_s = 1e11
duplex = true
"""


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    with tf.Graph().as_default() as graph:
        with tf.device("/GPU:1"):
            y = tf.exp(tf.compat.v1.placeholder(tf.float32, [2], name="x"), name="y")
        with tf.device("/GPU:5"):
            tf.tanh(y, name="z")
    file = tmp_path_factory.mktemp("graphs") / "graph.pb"
    file.write_bytes(graph.as_graph_def().SerializeToString())
    return file


def place(graph_file: pathlib.Path, out: pathlib.Path, *flags: str) -> tuple[str, dict[str, str]]:
    """What is printed, and the end of the name of each op's device."""
    argv = ["place", f"--meta_graph={graph_file}", "--fetches=z:0", "--cluster=k40x2", "--method=random"]
    printed = printed_by(*argv, "--budget_evaluations=20", f"--out={out}", *flags, width=60)
    return printed, {op: device.rpartition("device:")[2] for op, device in devices_in(out).items()}


def test_ops_are_placed_anew_and_that_is_told(graph_file, tmp_path):
    printed, _ = place(graph_file, tmp_path / "out", "--pin=x=GPU:0", "--pin=y=CPU:0", "--pin=z=GPU:1")
    line = (
        "3 of 3 ops ask for a device in the program itself; they are placed anew, and --respect_devices keeps them "
        "there"
    )
    assert line in printed.splitlines()


def test_ops_are_kept_where_they_ask_to_be(graph_file, tmp_path):
    printed, devices = place(graph_file, tmp_path / "out", "--respect_devices")
    assert (devices["x"], devices["y"]) == ("GPU:1", "GPU:1")
    line = (
        "3 of 3 ops ask for a device in the program itself; kept there: 2, placed freely: 1 (op 'z' asks for "
        "/device:GPU:5, which cluster 'k40x2' lacks)"
    )
    assert line in printed.splitlines()
    _, pinned = place(graph_file, tmp_path / "out", "--respect_devices", "--pin=y=CPU:0")
    assert (pinned["x"], pinned["y"]) == ("GPU:1", "CPU:0"), "a pin comes first"


def test_a_plan_that_is_given_is_applied(graph_file, tmp_path):
    place(graph_file, tmp_path / "out", "--pin=x=GPU:0", "--pin=y=CPU:0", "--pin=z=GPU:1")
    plan = tmp_path / "out" / "placement.json"
    _, devices = place(graph_file, tmp_path / "again", "--respect_devices", f"--plan={plan}")
    assert devices == {"x": "GPU:0", "y": "CPU:0", "z": "GPU:1"}


def test_a_graph_that_was_placed_before_is_not_held_by_its_old_plan(graph_file, tmp_path):
    place(graph_file, tmp_path / "out", "--pin=x=GPU:0", "--pin=y=GPU:0", "--pin=z=GPU:0")
    placed = tmp_path / "out" / META_GRAPH
    printed, devices = place(placed, tmp_path / "again", "--pin=x=GPU:1")
    assert devices["x"] == "GPU:1"
    assert "3 of 3 ops ask for a device in the program itself; they are placed anew" in printed
    printed, devices = place(placed, tmp_path / "kept", "--respect_devices")
    assert devices == {"x": "GPU:0", "y": "GPU:0", "z": "GPU:0"}
    assert "3 of 3 ops ask for a device in the program itself; kept there: 3" in printed.splitlines()
    # There is nothing to search.
    assert written(tmp_path / "kept")["method"] == "plan"


@pytest.mark.medium
def test_a_robust_plan_is_written(tmp_path):
    cluster, out = tmp_path / "two.toml", tmp_path / "out"
    cluster.write_text(_FAST_HOST)
    argv = ["place", "--workload=branches_small", f"--cluster={cluster}", f"--out={out}", "--robust"]
    printed_by(*argv, "--budget_evaluations=60", "--method=local_search")
    assert written(out)["written"] == "local_search"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("flags", "order"),
    [
        ([], "auto"),
        (["--order=none"], "none"),
        (["--robust"], "none"),
        (["--objective=memory"], "none"),
        (["--plan=PLAN"], "none"),
        (["--plan=PLAN", "--complete_plan"], "auto"),
        (["--cluster=local"], "none"),
    ],
)
def test_an_order_is_searched_unless_it_has_to_be_measured(flags, order, tmp_path, monkeypatch):
    asked = []

    def noted(request, *_, **__):
        asked.append(request.order)
        raise InputError("noted")

    base = ["place", "--workload=branches_small", "--cluster=p100x2", f"--out={tmp_path / 'plan'}"]
    printed_by(*base, "--method=single")
    monkeypatch.setattr(placing, "place", noted)
    given = [flag.replace("PLAN", str(tmp_path / "plan" / "placement.json")) for flag in flags]
    assert run([*base[:-1], f"--out={tmp_path / 'out'}", *given]) == 2
    assert asked == [order]


def test_an_order_is_searched_written_and_told(tmp_path):
    argv = ["place", "--workload=branches_small", "--cluster=p100x2", "--budget_evaluations=60", "--parts=1"]
    argv += ["--order=shuffled", "--method=local_search", "--write=method", f"--out={tmp_path}"]
    assert "The plan also orders ops by control edges" in " ".join(printed_by(*argv).split())
    summary, plan = written(tmp_path), written(tmp_path, "placement")
    assert summary["order"] == "shuffled" and len(set(plan["priorities"].values())) == summary["ops"]


@pytest.mark.medium
def test_clusters_are_simulated_on_described_devices_written_and_applied(tmp_path):
    out, again = tmp_path / "out", tmp_path / "again"
    argv = ["place", "--workload=lstm_lm_small", "--cluster=k40x2"]
    printed_by(*argv, "--parts=1", "--method=list_schedule", "--fuse", f"--out={out}")
    summary, plan = written(out), written(out, "placement")
    assert summary["written"] == "fused" and "ops are fused in" in summary["fused"]
    assert summary["runtime_s"] < min(filter(None, summary["baselines"].values()))
    assert plan["schema_version"] == 2 and plan["clusters"]
    graph_def = tf.compat.v1.GraphDef.FromString((out / "placed_graph.pb").read_bytes())
    assert sum(node.op == "PartitionedCall" for node in graph_def.node) == len(set(plan["clusters"].values()))
    printed_by(*argv, f"--plan={out / 'placement.json'}", f"--out={again}")
    assert written(again, "placement")["clusters"] == plan["clusters"]
    assert written(again)["runtime_s"] == summary["runtime_s"]


@pytest.fixture(scope="module")
def scheduled_plan(tmp_path_factory) -> dict:
    """A plan of a program on two devices with an order and clusters, as its file has it."""
    item = workloads.build("dense_small")
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    plain = Placement(problem, problem.everything_on(0))
    clusters = RULES["chain"].clusters(item, plain.device_names)
    assert clusters.max() >= 0
    return json.loads(
        Placement(problem, plain.device_of_unit, np.arange(problem.num_ops), clusters).to_json()
    )


def _with_cycle(plan: dict) -> None:
    """The first and the last op of a cluster without those between."""
    of_first = [op for op, cluster in plan["clusters"].items() if cluster == 0]
    plan["clusters"] = {of_first[0]: 0, of_first[-1]: 0}


def _with_two_devices(plan: dict) -> None:
    op = next(iter(plan["clusters"]))
    plan["devices"] = {
        name: device.replace("GPU:0", "GPU:1") if name == op or name.startswith(f"{op}/") else device
        for name, device in plan["devices"].items()
    }


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_with_cycle, "is in a cycle: something outside needs it and it needs that; make it two"),
        (_with_two_devices, "give all of a cluster the same device, or make it two"),
    ],
)
def test_a_plan_file_with_a_schedule_that_cannot_be_is_refused(
    spoil, message, scheduled_plan, capsys, tmp_path
):
    plan = copy.deepcopy(scheduled_plan)
    spoil(plan)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    argv = ["place", "--workload=dense_small", "--cluster=k40x2", f"--plan={tmp_path / 'plan.json'}"]
    assert command(*argv, f"--out={tmp_path / 'out'}")[0] == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_moving_an_op_moves_what_is_fused_with_it(scheduled_plan, tmp_path):
    made_for = {"workload": "dense_small", "cluster": "k40x2"}
    (tmp_path / "plan.json").write_text(json.dumps({**scheduled_plan, "made_for": made_for}))
    op, cluster = next(iter(scheduled_plan["clusters"].items()))
    text = printed_by("explain", f"--plan={tmp_path / 'plan.json'}", f"--op={op}", width=300)
    fused = list(scheduled_plan["clusters"].values()).count(cluster) - 1
    assert f"It is fused with {fused} others in cluster {cluster}, and moves with them" in text
    assert "Its priority is" in text and "what is fused with it elsewhere" in text


FOUND = Timed(DATA_PARALLEL, simulated_s=1e-9, peak_bytes={"GPU:0": 1 << 30}, is_candidate=False)


@pytest.fixture
def report() -> Outcome:
    problem = problem_of([100, 300], [])
    written, single = (
        Timed.of_search(name, search(problem, name, budget_evaluations=4)) for name in ("random", "single")
    )
    return Outcome(Form(problem), written, (single,))


def printed(report: Outcome) -> str:
    console = rich.console.Console(file=io.StringIO(), width=200)
    print_report(report, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_says_what_splitting_the_batch_would_take(tmp_path):
    flags = ["--workload=dense_small", "--cluster=p100x2", "--method=single", f"--out={tmp_path}"]
    shown = printed_by("place", *flags)
    told = written(tmp_path)
    row = told["data_parallel"]
    assert row["status"] == "OK"
    assert row["simulated_s"] >= row["lower_bound_s"] > 0
    assert [form["parts"] for form in told["forms"]] == [1, 2] and told["parts"] == 1
    assert "data parallel" in shown and milliseconds(row["simulated_s"]) in shown
    assert "Data parallel over 2 GPUs would take" in " ".join(shown.split())


def test_what_is_not_known_is_not_said(report):
    assert "data parallel" not in printed(report) and summary(report)["data_parallel"] is None


def test_a_reason_is_a_sentence_and_no_row(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import tensorflow as tf\ndef step(): return tf.sin(tf.random.uniform([4, 4]))\n")
    flags = [f"--script={script}:step", "--cluster=p100x2", "--method=single"]
    shown = " ".join(printed_by("place", *flags, f"--out={tmp_path / 'out'}").split())
    assert "The batch cannot be split: " in shown and "so there is no batch to split." in shown
    assert "data parallel" not in shown


def split_in(budget_s: float, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Outcome:
    """The report of a run whose split batch takes about 5 s."""
    monkeypatch.setattr(
        placing, "with_data_parallel", lambda found: dataclasses.replace(found, beside=(*found.beside, FOUND))
    )
    monkeypatch.setattr("tf_placer.planning.log.Durations.of", lambda self, key, rule_s=None: 5.0)
    request = Request(Source("dense_small"), Cluster.preset("p100x2"), Budget(budget_s, 4), 0, **more)
    with begins_at(time.monotonic()):
        return placing.place(request, "single", rich.console.Console(quiet=True))


def test_a_split_batch_that_does_not_fit_in_what_is_left_is_left_out(monkeypatch):
    found = split_in(0.1, monkeypatch)
    assert FOUND not in found.beside
    assert split_batch_sentences(found) == [
        "Splitting the batch over the devices was left out: that takes about 5 s; --budget_s=20 has room for it."
    ]


@pytest.mark.parametrize(("budget_s", "budget_of"), [(600.0, "whole"), (0.1, "search")])
def test_a_split_batch_that_fits_is_found(monkeypatch, budget_s, budget_of):
    found = split_in(budget_s, monkeypatch, budget_of=budget_of)
    assert FOUND in found.beside and not found.notes.get(Note.WHY_NOT_SPLIT)


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_ctrl_c_before_it_or_while_it_is_split_keeps_the_plan(is_interrupted, monkeypatch):
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    def ended(*given: Any, **more: Any) -> SearchResult:
        return dataclasses.replace(search(*given, **more), interrupted=is_interrupted)

    monkeypatch.setattr(find, "search", ended)
    monkeypatch.setattr(placing, "with_data_parallel", pressed)
    request = Request(Source("dense_small"), Cluster.preset("p100x2"), Budget(evaluations=4), 0)
    found = placing.place(request, "single", rich.console.Console(quiet=True))
    assert FOUND not in found.beside and found.search.interrupted is is_interrupted


def test_a_row(report):
    found = dataclasses.replace(FOUND, simulated_s=report.search.single_device_s / 2)
    shown = printed(dataclasses.replace(report, beside=(*report.beside, found)))
    row = next(line for line in shown.splitlines() if "data parallel" in line)
    assert "-50.0%" in row and "1.00 GiB" in row
    too_large = Timed(
        DATA_PARALLEL, status=Status.OUT_OF_MEMORY, message="it does not fit", is_candidate=False
    )
    assert "OOM" in printed(dataclasses.replace(report, beside=(*report.beside, too_large)))
