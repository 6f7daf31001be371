"""What is said of memory: what fits nowhere, how the plan fits, and what the least memory costs."""

import dataclasses
import io
import os

import numpy as np
import pytest
import rich.console

from tests.tf_placer.base.warm_workers import WarmWorkers
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.command_line.place import place
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.graph.program import Splitting
from tf_placer.planning import race
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import Outcome, Timed
from tf_placer.problem.problem import Problem
from tf_placer.report.files import summary
from tf_placer.report.sentences import fit_sentences, least_memory_sentence, verdict
from tf_placer.search.methods import Budget, Objective
from tf_placer.search.search import search


def towers(memory_bytes: int) -> Problem:
    """8 ops that wait for nothing, of 100 bytes each: 1000 ns on the first device and 1500 ns on the second."""
    compute_ns = np.repeat([[1000, 1500]], 8, axis=0)
    cluster = small_cluster(2, memory_bytes=memory_bytes)
    return problem_of(compute_ns, np.zeros((0, 2), int), cluster=cluster, resident_bytes=100)


def report_of(problem: Problem, **settings) -> Outcome:
    found = search(problem, budget_evaluations=400, **settings)
    return Outcome(Form(problem), Timed.of_search(found.method, found), ())


def test_where_one_device_holds_the_step_nothing_is_said() -> None:
    report = report_of(towers(1000))
    assert fit_sentences(report) == []
    found = summary(report)
    assert found["objective"] == "time" and found["single_device_needs"] is None
    assert {
        found[key] for key in found if key.startswith(("fastest_", "peak_share")) or key == "slow_down"
    } == {None}


def test_where_none_does_it_is_said_what_it_needs_and_how_the_plan_fits() -> None:
    # 800 bytes on devices of 600. The fastest plan has 5 ops, 500 bytes, on the first and 3 on the second.
    report = report_of(towers(600))
    needs, fits = fit_sentences(report)
    assert needs.startswith("No single device holds the step: ") and verdict(report).endswith(
        f"{needs}\n{fits}"
    )
    assert fits == (
        f"The plan of {report.written.name} fits: GPU:0, its fullest device, takes 500 B of 600 B, 16.7% "
        "of it free."
    )
    splitting = Splitting("", 8, 2, "whole")
    form = Form(dataclasses.replace(report.problem, splitting=splitting))
    in_parts = fit_sentences(dataclasses.replace(report, form=form))[0]
    assert in_parts.startswith("No single device holds the step with its batch in 2 parts: "), (
        "the whole may fit"
    )
    told = summary(report)["single_device_needs"]
    assert isinstance(told, dict)
    assert (told["needed_bytes"], told["has_bytes"]) == (800, 600)
    assert told["device"] in [device.name for device in report.problem.cluster.devices]
    assert set(told) == {"device", "needed_bytes", "has_bytes", "holders", "smallest_preset"}


def test_what_the_least_memory_costs() -> None:
    # 4 and 4 ops take 6000 ns and 400 bytes, the fastest 5 and 3 take 5000 ns and 500; 800 bytes on 2000 are 40 %.
    report = report_of(towers(1000), objective="memory", slow_down=0.25)
    said = least_memory_sentence(report.search)
    assert said.startswith("Smallest peak 400 B of 1000 B on GPU:") and "(fastest plan: 500 B)" in said
    assert "20.0% more time, where 25.0% is allowed; both are simulated" in said
    assert said.endswith("; no plan that fast is below 40.0% of its fullest device.")
    assert verdict(report).splitlines()[0] == said
    told = summary(report)
    assert (told["objective"], told["slow_down"]) == ("memory", 0.25)
    assert (told["fastest_runtime_s"], told["runtime_s"]) == (5e-6, 6e-6)
    assert sorted(told["fastest_peak_bytes"].values()) == [300, 500]
    assert (told["peak_share"], told["peak_share_bound"]) == (0.4, 0.4)


def test_a_bound_that_is_none_is_not_said() -> None:
    result = report_of(towers(1000), objective="memory", slow_down=0.25).search
    assert result.least_memory is not None
    none = dataclasses.replace(result, least_memory=dataclasses.replace(result.least_memory, bound_share=0.0))
    assert least_memory_sentence(none).endswith("; both are simulated.")


@pytest.mark.medium
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_on_live_devices_the_plan_of_least_memory_is_measured(
    warm_workers: WarmWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "RuntimeEvaluator", warm_workers.evaluator)
    request = Request(
        Source("dense_small"),
        warm_workers.cluster,
        Budget(1.0),
        0,
        costs="analytic",
        objective=Objective("memory", 0.5),
    )
    report = place(request, "random", rich.console.Console(file=io.StringIO()))
    assert report.search.least_memory is not None and report.recommended is report.written
    assert report.written.measured_s is not None and report.written.measured_s > 0
    assert report.single is not None and report.single.measured_s is not None
    told = summary(report)
    assert told["objective"] == "memory" and told["measured_s"] == report.written.measured_s
    assert told["peak_share"] <= max(
        told["fastest_peak_bytes"][device.name] / device.memory_bytes
        for device in report.problem.cluster.devices
    )
    assert verdict(report).startswith("Smallest peak ")
