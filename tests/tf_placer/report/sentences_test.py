"""What a report says about who won, from candidates made by hand."""

import dataclasses
import io

import pytest
import rich.console

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import Outcome, Timed, fastest
from tf_placer.problem.placement import Placement
from tf_placer.report.files import summary
from tf_placer.report.sentences import remarks, verdict
from tf_placer.report.text import plan_report, print_report, table
from tf_placer.search.search import search


@pytest.fixture(scope="module")
def problem():
    return problem_of([100, 300], [])


@pytest.fixture(scope="module")
def result(problem):
    return search(problem, "random", budget_evaluations=16)


@pytest.fixture
def report(problem, result):
    """Makes a report of (method, simulated seconds, measured seconds) triples, the chosen one first."""

    def make(chosen, *baselines, asked="", **changes):
        candidates = [
            Timed.of_search(
                method, dataclasses.replace(result, runtime_s=simulated_s), measured_s=measured_s, **changes
            )
            for method, simulated_s, measured_s in (chosen, *baselines)
        ]
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
    found = dataclasses.replace(
        found, form=Form(chain), written=dataclasses.replace(found.written, placement=plan)
    )
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
    assert summary(single)["baselines"]["single"] == 1.0, (
        "programs read it wherever another method was asked for"
    )


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
    assert verdict(slower).startswith(
        "No gain: use one device (1000 ms on the runtime, each timed by itself). "
    )
    assert "(hdp (random)) takes 1100 ms: 10.0% more time." in verdict(slower)
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
    unmeasured_single = Timed("single", status=Status.OUT_OF_MEMORY, message="too large")
    assert "No single device was timed" in verdict(
        Outcome(Form(problem), Timed.of_search("hdp", result), (unmeasured_single,))
    )


def test_the_summary_gives_what_was_not_measured_as_null(report):
    told = summary(report(("hdp", 0.8, None), ("single", 1.0, None), ("random", 0.9, None)))
    assert told["measured_s"] is None
    assert told["baselines"] == {"single": 1.0, "random": 0.9}
    assert told["baselines_measured"] == {"single": None, "random": None}
    assert told["baselines_evaluations"] == {"single": 16, "random": 16}


def test_what_one_method_proves_is_the_bound_of_all(problem, result):
    # The longer op alone takes 300 ns, so 400 are the optimum only where a method has proven it.
    assert result.lower_bound_s == pytest.approx(300e-9)
    by_time = {"exact": (400e-9, 400e-9), "single": (500e-9, 0.0), "random": (400e-9, 0.0)}
    exact, single, random = (
        Timed.of_search(method, dataclasses.replace(result, runtime_s=runtime_s, proven_s=proven_s))
        for method, (runtime_s, proven_s) in by_time.items()
    )
    told = summary(Outcome(Form(problem), random, (single, exact)))
    assert (told["tightest_bound"], told["lower_bound_s"]) == ("proven", 400e-9)
    assert told["lower_bounds"]["proven_s"] == 400e-9
    assert told["proven_optimal"] == ["exact", "random"]
    assert shown(Outcome(Form(problem), random, (single, exact))) == {
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
