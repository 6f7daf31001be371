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
from tf_placer.evaluation.measurement import Status
from tf_placer.planning import find
from tf_placer.planning.forms import Form
from tf_placer.planning.log import begins_at
from tf_placer.planning.outcome import DATA_PARALLEL, Note, Outcome, Timed
from tf_placer.report.files import summary
from tf_placer.report.sentences import split_batch_sentences
from tf_placer.report.text import print_report
from tf_placer.search.methods import Budget
from tf_placer.search.recorder import SearchResult
from tf_placer.search.search import search

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


def test_a_run_says_what_splitting_the_batch_would_take(tmp_path: pathlib.Path, capsys) -> None:
    flags = ["--workload=dense_small", "--cluster=p100x2", "--method=single", f"--out={tmp_path / 'out'}"]
    assert run(["place", *flags]) == 0
    told = json.loads((tmp_path / "out" / "summary.json").read_text())
    row = told["data_parallel"]
    assert row["status"] == "OK"
    assert row["simulated_s"] >= row["lower_bound_s"] > 0
    assert [form["parts"] for form in told["forms"]] == [1, 2] and told["parts"] == 1
    shown = capsys.readouterr().out
    assert "data parallel" in shown and milliseconds(row["simulated_s"]) in shown
    assert "Data parallel over 2 GPUs would take" in " ".join(shown.split())


def test_what_is_not_known_is_not_said(report: Outcome) -> None:
    assert "data parallel" not in printed(report) and summary(report)["data_parallel"] is None


def test_a_reason_is_a_sentence_and_no_row(tmp_path: pathlib.Path, capsys) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import tensorflow as tf\n\ndef step():\n    return tf.sin(tf.random.uniform([4, 4]))\n"
    )
    flags = [f"--script={script}:step", "--cluster=p100x2", "--method=single"]
    assert run(["place", *flags, f"--out={tmp_path / 'out'}"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
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


def test_a_split_batch_that_does_not_fit_in_what_is_left_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = split_in(0.1, monkeypatch)
    assert FOUND not in found.beside
    assert split_batch_sentences(found) == [
        "Splitting the batch over the devices was left out: that takes about 5 s; --budget_s=20 has room for it."
    ]


@pytest.mark.parametrize(("budget_s", "budget_of"), [(600.0, "whole"), (0.1, "search")])
def test_a_split_batch_that_fits_is_found(
    monkeypatch: pytest.MonkeyPatch, budget_s: float, budget_of: str
) -> None:
    found = split_in(budget_s, monkeypatch, budget_of=budget_of)
    assert FOUND in found.beside and not found.notes.get(Note.WHY_NOT_SPLIT)


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_ctrl_c_before_it_or_while_it_is_split_keeps_the_plan(
    is_interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    def ended(*given: Any, **more: Any) -> SearchResult:
        return dataclasses.replace(search(*given, **more), interrupted=is_interrupted)

    monkeypatch.setattr(find, "search", ended)
    monkeypatch.setattr(placing, "with_data_parallel", pressed)
    request = Request(Source("dense_small"), Cluster.preset("p100x2"), Budget(evaluations=4), 0)
    found = placing.place(request, "single", rich.console.Console(quiet=True))
    assert FOUND not in found.beside and found.search.interrupted is is_interrupted


def test_a_row(report: Outcome) -> None:
    found = dataclasses.replace(FOUND, simulated_s=report.search.single_device_s / 2)
    shown = printed(dataclasses.replace(report, beside=(*report.beside, found)))
    row = next(line for line in shown.splitlines() if "data parallel" in line)
    assert "-50.0%" in row and "1.00 GiB" in row
    too_large = Timed(
        DATA_PARALLEL, status=Status.OUT_OF_MEMORY, message="it does not fit", is_candidate=False
    )
    assert "OOM" in printed(dataclasses.replace(report, beside=(*report.beside, too_large)))
