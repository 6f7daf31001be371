"""report.html says what summary.json says, and the page of a placed function what its plans say."""

import ast
import dataclasses
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.tf_placer.problem.small_problems import without_overheads
from tests.tf_placer.report_page.drawn_pages import layered_problem, striped
from tf_placer.calibration.refit import Correction
from tf_placer.evaluation.simulated import Status
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import AS_IT_IS, DATA_PARALLEL, PLAN, SINGLE, Kept, Note, Outcome, Timed
from tf_placer.problem.bounds import MEANING, LowerBounds, lower_bounds
from tf_placer.problem.placement import Placement
from tf_placer.report import views
from tf_placer.report.sentences import remarks, use_of_plan, verdict
from tf_placer.report.views import how_to, page_of_run, plan_report, section_of_plan, write_report
from tf_placer.search import methods
from tf_placer.search.search import search

MADE_FOR = {"workload": "layered", "cluster": "k40x2", "batch_size": 32}


@pytest.fixture(scope="module")
def report() -> Outcome:
    problem = layered_problem(200)
    random = search(problem, "random", budget_evaluations=64, seed=1)
    single = search(problem, "single", budget_evaluations=3)
    return Outcome(
        Form(problem),
        Timed.of_search(
            "random",
            random,
            measured_s=1.5 * random.runtime_s,
            spread_s=(random.runtime_s, 2 * random.runtime_s),
        ),
        (
            Timed.of_search("single", single, measured_s=single.runtime_s),
            Timed("m_etf", status=Status.OUT_OF_MEMORY, message="nothing fits"),
        ),
    )


def written(report: Outcome, out: pathlib.Path) -> tuple[dict, dict]:
    """The page's section and the summary of one run."""
    assert out / "report.html" in write_report(report, out, MADE_FOR)
    text = (out / "report.html").read_text(encoding="utf8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    [section] = json.loads(data[1])["sections"]
    return section, json.loads((out / "summary.json").read_text(encoding="utf8"))


def test_its_numbers_are_those_of_the_summary(report, tmp_path):
    section, summary = written(report, tmp_path)
    assert section["plan"]["step_ns"] == round(1e9 * summary["runtime_s"])
    assert {
        d["name"]: m["peak_bytes"]
        for d, m in zip(section["plan"]["devices"], section["plan"]["memory"], strict=True)
    } == summary["peak_bytes"]
    assert {f"{bound['name']}_s": bound["bound_s"] for bound in section["bounds"]} == summary["lower_bounds"]
    [tightest] = [bound for bound in section["bounds"] if bound["is_tightest"]]
    assert (tightest["name"], tightest["bound_s"]) == (summary["tightest_bound"], summary["lower_bound_s"])
    rows = {row["name"]: row for row in section["step_times"]}
    assert rows["random"]["is_written"] and rows["random"]["simulated_s"] == summary["runtime_s"]
    assert rows["random"]["measured_s"] == summary["measured_s"]
    assert rows["random"]["evaluations"] == summary["evaluations"]
    assert rows["single device"]["simulated_s"] == summary["baselines"]["single"]
    assert rows["m_etf"]["simulated_s"] is summary["baselines"]["m_etf"] is None
    assert rows["m_etf"]["note"] == "OUT_OF_MEMORY; nothing fits"


def test_terms_are_explained_where_they_stand(report, tmp_path):
    section, _ = written(report, tmp_path)
    assert section["title"].endswith(" units (ops that must share a device are one unit)")
    rows = {row["name"]: row["about"] for row in section["step_times"]}
    assert rows["random"] == methods.find("random").summary and rows["m_etf"] == methods.find("m_etf").summary
    assert all(rows.values())
    assert {bound["name"]: bound["about"] for bound in section["bounds"]} == MEANING
    inside = dataclasses.replace(report.written.search, method="auto", found_by="learned_list")
    section, _ = written(dataclasses.replace(report, written=Timed.of_search("auto", inside)), tmp_path)
    [about] = [row["about"] for row in section["step_times"] if row["name"] == "auto (learned_list)"]
    assert (
        about == f"{methods.find('auto').summary} Here learned_list: {methods.find('learned_list').summary}"
    )


def test_every_bound_has_a_meaning():
    assert {field.name.removesuffix("_ns") for field in dataclasses.fields(LowerBounds)} == MEANING.keys()


def test_the_verdict_is_whole_and_the_fastest_comes_first(report, tmp_path):
    section, _ = written(report, tmp_path)
    said = " ".join([section["headline"], *section["notes"]])
    assert said == " ".join([verdict(report), *remarks(report)])
    assert "No published step times of networks on k40" in said
    measured = [row["measured_s"] for row in section["step_times"]]
    assert measured[:2] == sorted(measured[:2]) and measured[2] is None
    assert section["compared"] == {"clock": "measured_s", "single_s": report.named("single").measured_s}


def test_the_curve_ends_at_the_plan(report, tmp_path):
    page = page_of_run(report, tmp_path, ["placement.json"], MADE_FOR)
    curves = {curve["name"]: curve for curve in page.sections[0].curves}
    assert curves["random"]["best_s"][-1] == report.search.runtime_s and curves["random"]["is_written"]


def code_of(made_for: dict, *files: str, called: str = "") -> str:
    out = pathlib.Path("out with space")
    return "\n".join(step.code for step in how_to(out, ["placement.json", *files], made_for, called))


def test_what_to_type_names_files_that_are_there():
    text, here = code_of(MADE_FOR, "placed_graph.pb"), pathlib.Path.cwd() / "out with space"
    assert f"--plan='{here}/placement.json'" in text and "--batch_size" not in text
    assert "Cluster.preset('k40x2')" in text and "saved_model" not in text and "meta_graph" not in text
    flags = {"saved_model": "/m", "batch_size": 4, "cluster": "local:2", "fetches": ["a"]}
    model = code_of(flags, "placed_graph.pb", "saved_model")
    assert f"model = tf_placer.load_saved_model('{here}/saved_model')" in model
    assert "import_graph" not in model
    assert "--batch_size=4" in model and "--fetches" not in model
    assert f"load_saved_model('{here.parent}/saved_model')" in code_of(flags)  # of one of several signatures


@pytest.mark.parametrize(
    ("cluster", "python"),
    [
        ("local", "Cluster.local()"),
        ("local:2", "Cluster.local(2)"),
        ("logical:3", "Cluster.logical(3)"),
        ("p100x4", "Cluster.preset('p100x4')"),
        ("/here/my.toml", "Cluster.from_file('/here/my.toml')"),
    ],
)
def test_the_cluster_is_what_the_flag_means(cluster, python):
    assert f"tf_placer.{python})" in code_of({"cluster": cluster}, "placed_graph.pb")


@pytest.mark.parametrize("called", [views.MODEL, views.WRAPPED, views.FUNCTION, views.PLAIN])
@pytest.mark.parametrize("cluster", ["local", "logical:2", "k40x2"])
@pytest.mark.parametrize("script", ["/a b/train.py:net.step", "package.train:step"])
def test_code_for_a_script_is_whole(called, cluster, script):
    code = code_of({"script": script, "cluster": cluster, "batch_size": 8}, called=called)
    python = code[: code.index("tf-placer")]
    undefined = {
        node.id for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Name)
    } - {alias.asname or alias.name for node in ast.walk(ast.parse(python))
         if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}  # fmt: skip
    assert undefined <= {"cpu", "tf"} and ("tf" in undefined) is False
    is_run = called in (views.MODEL, views.FUNCTION) and cluster != "k40x2" and script.startswith("/")
    assert ("tf-placer run" in code) == is_run
    assert ("train_step = " in python) == (called == views.MODEL)
    assert (".unplaced" in python) == (called == views.WRAPPED)


def test_a_profiled_graph_has_no_program_to_type_for():
    [step] = how_to(pathlib.Path("out"), ["placement.json"], {"graph": "g.json", "cluster": "k40x2"})
    assert "no program" in step.text and step.code == ""


@pytest.fixture(scope="module")
def placement() -> Placement:
    problem = layered_problem(100)
    return striped(dataclasses.replace(problem, cluster=without_overheads(problem.cluster)))


Make = Callable[..., Outcome]


@pytest.fixture(scope="module")
def make(placement: Placement) -> Make:
    """Makes the outcome of a plan, by times of it and of others, as its file has them."""

    def made(*beside: Timed, correction: Correction | None = None, said: str = "", **times: Any) -> Outcome:
        problem = placement.problem if correction is None else correction.apply(placement.problem)
        return Outcome(
            Form(problem),
            Timed.simulated(PLAN, placement, **times),
            (Timed(SINGLE, simulated_s=0.5), *beside),
            notes={Note.WHY: "the fastest in the simulator", Note.BESIDE_UNPLACED: said},
            correction=correction,
            kept=Kept({}, progress=[("auto, search 1", [0.5, 2.0], [0.3, 0.2])]),
        )

    return made


@pytest.fixture(scope="module")
def plan(make: Make) -> Outcome:
    """A plan that was only simulated."""
    return make()


def test_what_is_simulated_is_said_to_be(plan):
    section = section_of_plan("train_step", 1, plan, is_used=True)
    assert section.headline.startswith("Placed: ") and section.headline.endswith("in the simulator.")
    assert section.plan is not None and section.plan.step_ns == round(1e9 * plan.written.simulated_s)
    assert [row["simulated_s"] for row in section.step_times] == [plan.written.simulated_s, 0.5]
    assert section.curves[0]["best_s"] == [0.3, 0.2]
    assert section.notes == ("The fastest in the simulator.",)


def test_what_was_raced_has_the_last_word_and_its_spread(placement, make):
    raced = make(
        Timed(AS_IT_IS, raced_s=0.1, spread_s=(0.09, 0.11)),
        raced_s=0.2,
        spread_s=(0.19, 0.22),
        is_clear=False,
        correction=Correction(compute=2.0),
        said="not clearly faster than the unplaced function, on the whole machine",
    )
    section = section_of_plan("train_step", 1, raced, is_used=False)
    assert section.headline == (
        "Kept as it was: the plan takes 200 ms a step, 100 ms the function takes as it is: 100% more time, in turn on "
        "the runtime."
    )
    assert section.notes[0].startswith("It is not clearly faster than the unplaced function")
    assert [(row["raced_s"], row["spread_s"]) for row in section.step_times if row["spread_s"]] == [
        (0.1, (0.09, 0.11)),
        (0.2, (0.19, 0.22)),
    ]
    assert section.plan is not None
    assert (
        section.plan.ops["duration_ns"].sum()
        == 2 * placement.problem.compute_ns[range(100), placement.device_of_op].sum()
    )
    assert "keep_unplaced=False" in section.apply[0].text


def test_what_splitting_the_batch_gives_is_a_note_and_a_row(plan):
    row = Timed(DATA_PARALLEL, simulated_s=plan.written.simulated_s / 2, is_candidate=False)
    with_row = dataclasses.replace(plan, beside=(*plan.beside, row))
    section = section_of_plan("train_step", 1, with_row, is_used=True)
    assert section.notes[1].startswith("Data parallel over 2 GPUs would") and "50.0% less" in section.notes[1]
    (shown,) = (row for row in section.step_times if row["name"] == "data parallel")
    assert shown["simulated_s"] == plan.written.simulated_s / 2
    why_not = plan.noted({Note.WHY_NOT_SPLIT: "The batch cannot be split: it has none."})
    section = section_of_plan("train_step", 1, why_not, is_used=True)
    assert "cannot be split" in section.notes[1] and len(section.step_times) == 2


def test_calls_have_the_last_word(make):
    tried = make(Timed(AS_IT_IS, raced_s=0.2), raced_s=0.1, is_clear=True).tried(False, 0.3, 0.25)
    section = section_of_plan("train_step", 1, tried, is_used=False)
    assert section.headline == (
        "Kept as it was: the plan takes 300 ms a step, 250 ms the function takes as it is: 20.0% more time, in the "
        "first calls."
    )
    assert [(row["called_s"], row["raced_s"]) for row in section.step_times[:2]] == [(0.25, 0.2), (0.3, 0.1)]
    assert "call by call" in section.notes[0]
    text = plan_report("train_step", tried, False)
    assert "called: the plan 300 ms, as it is, whole machine 250 ms a step" in text
    assert "raced: the plan 100 ms, as it is, whole machine 200 ms a step" in text


def test_while_the_first_calls_are_to_decide_that_is_said(plan):
    section = section_of_plan("train_step", 1, plan, is_used=None)
    assert section.headline.startswith("On trial, the first calls decide: the plan takes ")
    assert "first calls decide" in section.apply[0].text


@pytest.mark.parametrize("is_used", [True, False, None])
def test_text_and_page_tell_the_same_bound_and_the_verdict_first(placement, make, is_used):
    fitted = make(correction=Correction(compute=2.0))
    (shown,) = (
        value for name, value in section_of_plan("step", 1, fitted, is_used).figures if name == "lower bound"
    )
    text = plan_report("step", fitted, is_used)
    assert f"no plan can be faster than {shown} in the simulator" in text
    assert text.splitlines()[0] == f"step is {use_of_plan(fitted, is_used)}"
    assert lower_bounds(placement.problem).best_s != pytest.approx(fitted.form.lower_bound_s), "no proof"
