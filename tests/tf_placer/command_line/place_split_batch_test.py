"""A run's report has the batch split beside its plan: in the table, in the verdict and in summary.json."""

import dataclasses
import io
import json
import pathlib
import time
from typing import Any

import pytest
import rich.console

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.__main__ import run
from tf_placer.base.quantities import milliseconds
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line import place as placing
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.data_parallel.data_parallel import DataParallel
from tf_placer.planning import road
from tf_placer.planning.outcome import Outcome, Timed
from tf_placer.planning.stages import begins_at
from tf_placer.report.files import summary
from tf_placer.report.sentences import split_batch_sentences
from tf_placer.report.text import print_report
from tf_placer.search.known import Budget
from tf_placer.search.recorder import SearchResult
from tf_placer.search.search import search

GPUS = ("/job:localhost/replica:0/task:0/device:GPU:0", "/job:localhost/replica:0/task:0/device:GPU:1")
FOUND = DataParallel(GPUS, 8, 4, step_s=1e-9, peak_bytes=dict.fromkeys(GPUS, 1 << 30))


@pytest.fixture
def report() -> Outcome:
    problem = problem_of([100, 300], [])
    return Outcome(
        None, problem, Timed.of_search("random", search(problem, "random", budget_evaluations=4)), ()
    )


def printed(report: Outcome) -> str:
    console = rich.console.Console(file=io.StringIO(), width=200)
    print_report(report, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_says_what_splitting_the_batch_would_take(tmp_path: pathlib.Path, capsys) -> None:
    flags = ["--workload=dense_small", "--cluster=p100x2", "--method=single", f"--out={tmp_path / 'out'}"]
    assert run(["place", *flags]) == 0
    told = json.loads((tmp_path / "out" / "summary.json").read_text())["data_parallel"]
    assert (told["batch"], told["replica_batch"], told["why_not"]) == (8, 4, "")
    assert told["step_s"] == told["replica_s"] + told["all_reduce_s"]
    shown = capsys.readouterr().out
    assert "data parallel x2" in shown and milliseconds(told["step_s"]) in shown
    assert "tf.distribute.MirroredStrategy over 2 GPUs" in " ".join(shown.split())


def test_what_is_not_known_is_not_said(report: Outcome) -> None:
    assert "data parallel" not in printed(report) and summary(report)["data_parallel"] is None


def test_a_reason_is_a_sentence_and_no_row(report: Outcome) -> None:
    why_not = DataParallel(GPUS, 7, why_not="7 examples do not divide by 2 devices")
    shown = printed(dataclasses.replace(report, data_parallel=why_not))
    assert "cannot be split over 2 GPUs instead: 7 examples" in shown and "data parallel x" not in shown


def split_in(budget_s: float, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Outcome:
    """The report of a run whose split batch takes about 5 s."""
    monkeypatch.setattr(placing, "data_parallel", lambda *_: FOUND)
    monkeypatch.setattr("tf_placer.planning.stages.Durations.known", lambda self, key, rule_s: 5.0)
    request = Request(Source("dense_small"), Cluster.preset("p100x2"), Budget(budget_s, 4), 0, **more)
    with begins_at(time.monotonic()):
        return placing.place(request, "single", rich.console.Console(quiet=True))


def test_a_split_batch_that_does_not_fit_in_what_is_left_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = split_in(0.1, monkeypatch)
    assert found.data_parallel is None
    assert split_batch_sentences(found) == [
        "Splitting the batch over the devices instead was left out: that takes about 5 s; --budget_s=20 has room for "
        "it."
    ]


@pytest.mark.parametrize(("budget_s", "budget_of"), [(600.0, "whole"), (0.1, "search")])
def test_a_split_batch_that_fits_is_found(
    monkeypatch: pytest.MonkeyPatch, budget_s: float, budget_of: str
) -> None:
    found = split_in(budget_s, monkeypatch, budget_of=budget_of)
    assert found.data_parallel is FOUND and found.why_not_split == ""


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_ctrl_c_before_it_or_while_it_is_traced_keeps_the_plan(
    is_interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    def ended(*given: Any, **more: Any) -> SearchResult:
        return dataclasses.replace(search(*given, **more), interrupted=is_interrupted)

    monkeypatch.setattr(road, "search", ended)
    monkeypatch.setattr(placing, "data_parallel", pressed)
    request = Request(Source("dense_small"), Cluster.preset("p100x2"), Budget(evaluations=4), 0)
    found = placing.place(request, "single", rich.console.Console(quiet=True))
    assert found.data_parallel is None and found.search.interrupted is is_interrupted


def test_a_row(report: Outcome) -> None:
    found = dataclasses.replace(FOUND, step_s=report.search.single_device_s / 2)
    row = next(
        line
        for line in printed(dataclasses.replace(report, data_parallel=found)).splitlines()
        if "x2" in line
    )
    assert "data parallel x2" in row and "-50.0%" in row and "1.00 GiB" in row
    too_large = dataclasses.replace(report, data_parallel=dataclasses.replace(found, over_bytes=1))
    assert "OOM" in printed(too_large)


@pytest.mark.parametrize(
    ("source", "batch"), [(Source("two_towers"), 1024), (Source(saved_model="x", batch_size=6), 6)]
)
def test_the_batch_of_a_source(source: Source, batch: int) -> None:
    splittable = source.splittable()
    assert splittable is not None and splittable.batch == batch


def test_a_profiled_graph_has_no_batch() -> None:
    assert Source(graph="x").splittable() is None
