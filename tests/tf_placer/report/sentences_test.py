"""What a report says about who won, of memory and of the batch in parts, from candidates made by hand."""

import dataclasses
import io
import json
import os

import numpy as np
import pytest
import rich.console

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import percentage
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.place import place
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.evaluation.simulated import SimulatedEvaluator, Status
from tf_placer.graph.program import Splitting
from tf_placer.planning import live as race
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import DATA_PARALLEL, Note, Outcome, Timed, fastest
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.report.sentences import (
    FIGURES,
    fidelity_sentence,
    fidelity_sentences,
    fit_sentences,
    least_memory_sentence,
    plan_in_parts_sentences,
    remarks,
    split_batch_sentences,
    verdict,
)
from tf_placer.report.views import page_of_run, plan_report, print_report, summary, table
from tf_placer.search.methods import Budget, Objective
from tf_placer.search.search import search
from tf_placer.transform.split import SplitProgram, split_program
from tf_placer.transform.split.plans import data_parallel_plan
from tf_placer.workloads import registry


@pytest.fixture(scope="module")
def problem():
    return problem_of([100, 300], [])


@pytest.fixture(scope="module")
def result(problem):
    return search(problem, "random", budget_evaluations=16)


@pytest.fixture
def report(problem, result):
    """Makes a report of (method, simulated seconds, measured seconds) triples, the chosen one first."""

    def candidate(method, simulated_s, measured_s, **changes):
        found = dataclasses.replace(result, runtime_s=simulated_s)
        return Timed.of_search(method, found, measured_s=measured_s, **changes)

    def make(chosen, *baselines, asked="", **changes):
        candidates = [candidate(*row, **changes) for row in (chosen, *baselines)]
        return Outcome(Form(problem), candidates[0], tuple(candidates[1:]), asked=asked)

    return make


def test_a_gain_over_a_single_device_is_told_with_where_it_was_seen(report):
    simulated = report(("hdp", 0.8, None), ("single", 1.0, None), ("random", 0.9, None))
    assert verdict(simulated) == (
        "Hdp (random) takes 800 ms in the simulator, 20.0% less time than a single device (1000 ms)."
    )
    assert simulated.recommended.name == "hdp"
    measured = report(("hdp", 0.8, 0.9), ("single", 1.0, 1.0), ("random", 0.7, 0.95))
    assert verdict(measured) == (
        "Hdp (random) takes 900 ms on the runtime, each timed by itself, 10.0% less time than a single device "
        "(1000 ms)."
    )
    assert measured.recommended.name == "hdp"


def test_order_and_clusters_of_a_plan_are_told_with_what_they_are_worth(report):
    chain = problem_of([100, 300, 50], [[0, 1], [1, 2]])
    plan = Placement(chain, [0, 0, 0], [2, 0, 1], [0, 0, -1])
    found = report(("plan", 0.8, None))
    written = dataclasses.replace(found.written, placement=plan)
    found = dataclasses.replace(found, form=Form(chain), written=written)
    said, told = verdict(found), summary(found)
    assert "The plan also orders ops by control edges" in said
    assert "2 ops are fused in 1 cluster, which saves 1 kernels" in said
    with_s, without_s = told["schedule"]["fused"].values()
    times = SimulatedEvaluator(chain).evaluate(plan.decisions).runtime_s[0]
    assert with_s == times and without_s == pytest.approx(450e-9)
    assert told["schedule"].keys() == {"order", "fused"} and told["savings"]["kernels"] == 1
    assert "Lower bounds are those of plans that fuse nothing" in " ".join(remarks(found))
    assert not found.is_optimal(found.written)
    text = plan_report("f", found, True)
    assert "orders ops by control edges" in text and "2 ops are fused" in text


def test_a_row_that_the_table_shows_as_equal_is_not_called_faster(report):
    said = verdict(report(("hdp", 0.8, None), ("single", 1.0, None), ("random", 0.79999, None)))
    assert "less still" not in said


def test_a_baseline_that_wins_is_named_and_so_is_the_plan_that_is_written(report):
    said = verdict(report(("hdp", 0.8, None), ("single", 1.0, None), ("random", 0.7, None)))
    assert said.startswith("Hdp (random) takes 800 ms") and "Random takes less still, 700 ms" in said
    fastest = report(("random", 0.7, None), ("single", 1.0, None), ("hdp", 0.8, None), asked="hdp")
    assert verdict(fastest) == (
        "Random takes 700 ms in the simulator, 30.0% less time than a single device (1000 ms).\n"
        "The method asked for, hdp, takes 800 ms in the simulator (--write=method writes its plan)."
    )
    told = summary(fastest)
    assert (told["method"], told["written"], told["runtime_s"]) == ("hdp", "random", 0.7)
    assert told["baselines"] == {"single": 1.0, "hdp": 0.8}
    single = report(("single", 1.0, None), ("hdp", 1.25, None), ("random", 1.1, None), asked="hdp")
    assert verdict(single) == (
        "No gain: use one device. It takes 1000 ms in the simulator; no plan here takes less.\n"
        "The method asked for, hdp, takes 1250 ms in the simulator (--write=method writes its plan)."
    )
    assert summary(single)["baselines"]["single"] == 1.0, "programs read it"


def test_a_slower_method_beside_a_plan_that_gains_is_not_told_to_leave_the_program(report):
    said = verdict(report(("random", 0.5, None), ("single", 1.0, None), ("hdp", 1.25, None), asked="hdp"))
    assert said.startswith("Random takes 500 ms") and "use one device" not in said
    assert "The method asked for, hdp, takes 1250 ms" in said


@pytest.mark.parametrize("slower", [0.0, 1e-9, -1e-9])
def test_no_difference_is_not_told_as_one(report, slower):
    said = verdict(report(("single", 1.0, None), ("hdp", 1.0 + slower, None), asked="hdp"))
    assert said.startswith("No gain: use one device. ") and "0.0%" not in said


def test_the_fastest_is_the_single_device_on_a_tie_and_then_what_was_asked_for(result):
    def candidate(method, seconds):
        return Timed.of_search(method, dataclasses.replace(result, runtime_s=seconds))

    random, hdp, single = candidate("random", 0.5), candidate("hdp", 0.5), candidate("single", 1.0)
    assert fastest([random, hdp, single], "hdp") is hdp
    assert fastest([random, hdp, single], "random") is random
    assert fastest([hdp, candidate("single", 0.5)], "hdp").name == "single"
    nothing = Timed("hdp", status=Status.OUT_OF_MEMORY)
    assert fastest([nothing, random], "hdp") is random and fastest([nothing], "hdp") is None


def test_no_gain_is_told_plainly(report):
    slower = report(("hdp", 0.8, 1.1), ("single", 1.0, 1.0))
    said = verdict(slower)
    assert said.startswith("No gain: use one device (1000 ms on the runtime, each timed by itself). ")
    assert "(hdp (random)) takes 1100 ms: 10.0% more time." in said
    assert slower.recommended.name == "single"
    assert summary(slower)["recommended"] == "single"
    tie = report(("hdp", 1.0, None), ("single", 1.0, None))
    assert tie.recommended.name == "single", "a plan that gains nothing is not worth having"


def test_what_did_not_run_is_told_and_not_recommended(report, problem, result):
    failed = report(("hdp", 0.8, None), status=Status.CRASHED, message="worker 1 died")
    assert verdict(failed) == "Hdp (random) did not run: CRASHED."
    console = rich.console.Console(file=io.StringIO(), width=200)
    print_report(failed, console)
    assert "hdp: worker 1 died" in console.file.getvalue()
    nothing = Timed("hdp", status=Status.OUT_OF_MEMORY, message="nothing fits")
    with pytest.raises(InputError, match="nothing fits"):
        Outcome(Form(problem), nothing, ())
    single = Timed("single", status=Status.OUT_OF_MEMORY, message="too large")
    untimed = Outcome(Form(problem), Timed.of_search("hdp", result), (single,))
    assert "No single device was timed" in verdict(untimed)


def test_the_summary_gives_what_was_not_measured_as_null(report):
    told = summary(report(("hdp", 0.8, None), ("single", 1.0, None), ("random", 0.9, None)))
    assert told["measured_s"] is None
    assert told["baselines"] == {"single": 1.0, "random": 0.9}
    assert told["baselines_measured"] == {"single": None, "random": None}
    assert told["baselines_evaluations"] == {"single": 16, "random": 16}


def test_what_one_method_proves_is_the_bound_of_all(problem, result, tmp_path):
    # The longer op alone takes 300 ns, so 400 are the optimum only where a method has proven it.
    assert result.lower_bound_s == pytest.approx(300e-9)
    by_time = {"exact": (400e-9, 400e-9), "single": (500e-9, 0.0), "random": (400e-9, 0.0)}
    exact, single, random = (
        Timed.of_search(method, dataclasses.replace(result, runtime_s=runtime_s, proven_s=proven_s))
        for method, (runtime_s, proven_s) in by_time.items()
    )
    outcome = Outcome(Form(problem), random, (single, exact))
    told = summary(outcome)
    assert (told["tightest_bound"], told["lower_bound_s"]) == ("proven", 400e-9)
    assert told["lower_bounds"]["proven_s"] == 400e-9
    assert told["proven_optimal"] == ["exact", "random"]
    bounds = page_of_run(outcome, tmp_path, [], {}).sections[0].bounds
    assert [bound["name"] for bound in bounds if bound["is_tightest"]] == ["proven"]
    assert shown(outcome) == {
        "single device",
        "exact (random), proven optimal",
        "random, proven optimal",
        "bound: proven (tightest)",
    }
    without = Outcome(Form(problem), random, (single,))
    assert "proven_s" not in summary(without)["lower_bounds"]
    assert summary(without)["proven_optimal"] == []
    assert shown(without) == {"single device", "random"}


def shown(report):
    """The rows of methods, and the one of what was proven."""
    rows = [str(cell) for cell in table(report).columns[0].cells]
    return {row for row in rows if not row.startswith("bound") or "proven" in row}


def towers(memory_bytes: int) -> Problem:
    """8 ops that wait for nothing, of 100 bytes each: 1000 ns on the first device and 1500 ns on the second."""
    compute_ns = np.repeat([[1000, 1500]], 8, axis=0)
    cluster = small_cluster(2, memory_bytes=memory_bytes)
    return problem_of(compute_ns, np.zeros((0, 2), int), cluster=cluster, resident_bytes=100)


def report_of(problem: Problem, **settings) -> Outcome:
    found = search(problem, budget_evaluations=400, **settings)
    return Outcome(Form(problem), Timed.of_search(found.method, found), ())


def test_where_one_device_holds_the_step_nothing_is_said():
    report = report_of(towers(1000))
    assert fit_sentences(report) == []
    told = summary(report)
    assert told["objective"] == "time" and told["single_device_needs"] is None
    of_memory = [key for key in told if key.startswith(("fastest_", "peak_share"))]
    assert of_memory and {told[key] for key in [*of_memory, "slow_down"]} == {None}


def test_where_none_does_it_is_said_what_it_needs_and_how_the_plan_fits():
    # 800 bytes on devices of 600. The fastest plan has 5 ops, 500 bytes, on the first and 3 on the second.
    report = report_of(towers(600))
    needs, fits = fit_sentences(report)
    assert needs.startswith("No single device holds the step: ")
    assert verdict(report).endswith(f"{needs}\n{fits}")
    assert fits == (
        f"The plan of {report.written.name} fits: GPU:0, its fullest device, takes 500 B of 600 B, 16.7% "
        "of it free."
    )
    form = Form(dataclasses.replace(report.problem, splitting=Splitting("", 8, 2, "whole")))
    assert fit_sentences(dataclasses.replace(report, form=form))[0].startswith(
        "No single device holds the step with its batch in 2 parts: "
    ), "the whole may fit"
    told = summary(report)["single_device_needs"]
    assert isinstance(told, dict)
    assert (told["needed_bytes"], told["has_bytes"]) == (800, 600)
    assert told["device"] in [device.name for device in report.problem.cluster.devices]
    assert set(told) == {"device", "needed_bytes", "has_bytes", "holders", "smallest_preset"}


def test_what_the_least_memory_costs():
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


def test_a_bound_that_is_none_is_not_said():
    result = report_of(towers(1000), objective="memory", slow_down=0.25).search
    assert result.least_memory is not None
    none = dataclasses.replace(result, least_memory=dataclasses.replace(result.least_memory, bound_share=0.0))
    assert least_memory_sentence(none).endswith("; both are simulated.")


@pytest.mark.medium
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_on_live_devices_the_plan_of_least_memory_is_measured(warm_workers, monkeypatch):
    monkeypatch.setattr(race, "RuntimeEvaluator", warm_workers.evaluator)
    request = Request(
        Source("dense_small"), warm_workers.cluster, Budget(1.0), 0, costs="analytic",
        objective=Objective("memory", 0.5),
    )  # fmt: skip
    report = place(request, "random", rich.console.Console(file=io.StringIO()))
    assert report.search.least_memory is not None and report.recommended is report.written
    assert report.written.measured_s is not None and report.written.measured_s > 0
    assert report.named("single") is not None and report.named("single").measured_s is not None
    told = summary(report)
    assert told["objective"] == "memory" and told["measured_s"] == report.written.measured_s
    assert told["peak_share"] <= max(
        told["fastest_peak_bytes"][device.name] / device.memory_bytes
        for device in report.problem.cluster.devices
    )
    assert verdict(report).startswith("Smallest peak ")


CLUSTER = Cluster.preset("p100x2")


@pytest.fixture(scope="module")
def program() -> SplitProgram:
    return split_program(registry.build("dense_small"), 2)


@pytest.fixture(scope="module")
def in_parts(program: SplitProgram) -> Problem:
    return build_problem(program.item, CLUSTER)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    problem = build_problem(registry.build("dense_small"), CLUSTER)
    return Outcome(Form(problem), Timed.of_search("random", search(problem, "random", budget_evaluations=4)))


def said(outcome: Outcome, plan_s: float | None, *beside: Timed, why_not: str = "") -> list[str]:
    written = dataclasses.replace(outcome.written, simulated_s=plan_s)
    rows = [dataclasses.replace(row, is_candidate=False) for row in beside]
    notes = {Note.WHY_NOT_SPLIT: why_not}
    return split_batch_sentences(dataclasses.replace(outcome, written=written, beside=rows, notes=notes))


@pytest.mark.parametrize(
    ("plan_s", "end"),
    [
        (
            0.4,
            "300 ms in the simulator, 25.0% less than this plan: parts=2 searches plans with a part for each.",
        ),
        (0.24, "300 ms in the simulator, 25.0% more than this plan."),
        (0.3, "300 ms in the simulator, as this plan does."),
        (0.0, "300 ms in the simulator, and this plan no time."),
        (None, "300 ms in the simulator."),
    ],
)
def test_data_parallel_beside_the_plan(outcome, plan_s, end):
    assert said(outcome, plan_s, Timed(DATA_PARALLEL, simulated_s=0.3)) == [
        f"Data parallel over 2 GPUs would take {end}"
    ]


def test_it_does_not_fit(outcome):
    row = Timed(DATA_PARALLEL, status=Status.OUT_OF_MEMORY, message="it wants 3 GiB")
    assert said(outcome, 0.4, row) == ["Data parallel over 2 GPUs does not fit: it wants 3 GiB."]


def test_why_not(outcome):
    assert said(outcome, 0.4, why_not="The batch cannot be split: it has none.") == [
        "The batch cannot be split: it has none."
    ]


def test_nothing_is_said_of_what_nobody_asked(outcome):
    assert said(outcome, 0.4) == []


def test_a_plan_in_parts_is_told_by_its_layers(program, in_parts):
    row = data_parallel_plan(in_parts, (0, 1))
    (everywhere,) = plan_in_parts_sentences(Placement(in_parts, row))
    assert everywhere.startswith("The plan: the batch in 2 parts; ")
    assert everywhere.endswith(" split over GPU:0 and GPU:1.") and everywhere.count(" on ") == 0
    last = np.array(
        [i for i, name in enumerate(in_parts.op_names) if name.startswith("part_") and "dense_3" in name]
    )
    together = row.copy()
    together[in_parts.unit_of_op[last]] = 1
    (told,) = plan_in_parts_sentences(Placement(in_parts, together))
    assert "dense_3 on GPU:1" in told and "dense_2 (" in told


def test_nothing_is_told_of_a_whole_batch_or_of_one_device(outcome, in_parts):
    assert plan_in_parts_sentences(outcome.placement) == []
    assert plan_in_parts_sentences(Placement(in_parts, in_parts.everything_on(0))) == [] or set(
        Placement(in_parts, in_parts.everything_on(0)).device_of_op.tolist()
    ) != {0}


def test_a_gpu_with_measurements_says_its_factor():
    factor = json.loads(FIGURES.read_text())["p100"]["factor"]
    assert f"typically within {percentage(factor - 1)} of published ones" in fidelity_sentence("p100")
    assert 1.0 < factor < 1.5


def test_a_gpu_that_we_measured_says_so():
    figures = json.loads(FIGURES.read_text())["h100_fp32"]
    assert 0 < figures["own"] < figures["rows"]
    said = fidelity_sentence("h100_fp32")
    assert f"of measured ones ({figures['rows']} steps, {figures['own']} measured by us" in said


def test_a_gpu_without_says_so():
    assert "No published step times of networks on k40" in fidelity_sentence("k40")


def test_one_sentence_for_each_model_and_none_for_live_devices():
    assert len(fidelity_sentences(Cluster.preset("p100x4"))) == 1
    assert fidelity_sentences(Cluster.logical(2)) == []
