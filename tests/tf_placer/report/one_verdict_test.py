"""Headline, table, chart, summary and plan of an outcome say one thing, whatever kind of outcome it is."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tests.tf_placer.report.one_verdict import check_says_one_thing
from tf_placer.evaluation.simulated import Status
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import (
    AS_IT_IS,
    DATA_PARALLEL,
    FUSED,
    GIVEN,
    SINGLE,
    SPLIT,
    Note,
    Outcome,
    Timed,
    in_layers,
    with_race,
)
from tf_placer.problem.placement import Placement
from tf_placer.report.sentences import verdict
from tf_placer.search.search import search

PROBLEM = problem_of([100, 300, 200], [])
APART, TOGETHER = Placement(PROBLEM, [0, 1, 0]), Placement(PROBLEM, [1, 1, 1])
MS = 1e-3


def row(name: str, simulated_ms: float, placement: Placement = APART, **more: Any) -> Timed:
    """A row of a search of this problem, said to take so long."""
    found = search(PROBLEM, "random", budget_evaluations=8)
    given = dataclasses.replace(found, placement=placement, runtime_s=simulated_ms * MS, found_by=name)
    return Timed.of_search(name, given, **more)


def single(simulated_ms: float) -> Timed:
    return row(SINGLE, simulated_ms, TOGETHER)


def raced(*rows: tuple[Timed, float], as_it_is: float | None, sway: float = 0.0) -> list[Timed]:
    """Rows after a race in which each takes so long; with some sway none is clearly ahead."""
    turns = 1 + sway * np.where(np.arange(20) % 2, 1, -1)
    samples = [(ms * MS * (turns if i % 2 else 1 / turns)).tolist() for i, (_, ms) in enumerate(rows)]
    timed = [dataclasses.replace(one, measured_s=0.9 * ms * MS) for one, ms in rows]
    if as_it_is is not None:
        timed.append(Timed(AS_IT_IS))
        samples.append([as_it_is * MS] * 20)
    return with_race(timed, samples)


def outcome(written: Timed, *beside: Timed, **more: Any) -> Outcome:
    return Outcome(Form(PROBLEM), written, beside, **more)


def live(plan_ms, single_ms, as_it_is_ms, sway=0.0, load=None) -> Outcome:
    """A live search that decided as it does: a plan that is clearly faster than a single device, or that."""
    rows = (row("auto", 9), plan_ms), (single(8), single_ms)
    plan, alone, *behind = raced(*rows, as_it_is=as_it_is_ms, sway=sway)
    is_ahead = plan_ms < single_ms and not sway
    written, other = (plan, alone) if is_ahead else (alone, plan)
    notes = {Note.WHY: "turn by turn", Note.DECIDED: written.name, Note.LOAD: load}
    return outcome(written, other, *behind, asked="auto", notes=notes)


def described(plan_ms: float, single_ms: float) -> Outcome:
    return outcome(row("auto", plan_ms), single(single_ms))


def memory_objective() -> Outcome:
    least = search(PROBLEM, "random", budget_evaluations=8, objective="memory", slow_down=0.5)
    return outcome(Timed.of_search("random", least), single(8))


def fused() -> Outcome:
    clustered = dataclasses.replace(APART, cluster_of_op=[0, -1, 0])
    rows = (row(FUSED, 5, clustered), 4), (row("auto", 6), 5), (single(8), 8)
    plan, *behind = raced(*rows, as_it_is=9)
    notes = {Note.WHY: "w", Note.DECIDED: FUSED, Note.FUSED: "2 ops are fused."}
    return outcome(plan, *behind, asked="auto", notes=notes)


def race_that_failed() -> Outcome:
    plan = dataclasses.replace(row("auto", 6), measured_s=7e-3, message="the race failed")
    return outcome(plan, dataclasses.replace(single(8), measured_s=7.1e-3))


def split_written() -> Outcome:
    return outcome(row(SPLIT, 4), row("auto", 6), row(DATA_PARALLEL, 5), single(8), asked="auto")


def does_not_fit() -> Outcome:
    too_large = Timed(SINGLE, status=Status.OUT_OF_MEMORY, message="too large")
    return outcome(row("auto", 6), too_large, row("heft", 7))


def compared() -> Outcome:
    return outcome(*raced((row("heft", 5), 5), (row("hdp", 4), 6), as_it_is=4))


# Kind -> the outcome, whether it gains, and words of its headline.
KINDS: dict[str, tuple[Callable[[], Outcome], bool, str]] = {
    "described gain": (lambda: described(6, 8), True, "simulator, 25.0% less time than a single"),
    "described gain too small": (
        lambda: described(7.98, 8),
        False,
        "No gain: use one device .8.00 ms in the simulator.*0.2% less time, which is not worth a plan",
    ),
    "described loss": (
        lambda: outcome(row("auto", 9), single(8)),
        False,
        "No gain: use one device.*12.5% more time",
    ),
    "single written": (
        lambda: outcome(single(8), row("auto", 9), asked="auto"),
        False,
        "No gain: use one device. It takes 8.00 ms",
    ),
    "single written, split would gain": (
        lambda: outcome(single(8), row("auto", 9), row(DATA_PARALLEL, 5, is_candidate=False), asked="auto"),
        False,
        "No gain: use one device or split the batch",
    ),
    "one device does not hold it": (does_not_fit, False, "No single device was timed; auto"),
    "parts win": (split_written, True, "Split and placed takes .* 50.0% less time than a single device"),
    "live gain": (lambda: live(4, 8, 9), True, "turn on the runtime, 50.0% less time than a"),
    "live gain, as it is second": (lambda: live(4, 8, 5), True, "20.0% .* program as it is"),
    "as it is fastest": (
        lambda: live(4, 8, 3),
        False,
        "No gain: leave the program as it is .3.00 ms.*.auto. takes 4.00 ms: 33.3% more time",
    ),
    "live within noise": (
        lambda: live(8, 8.1, 20, sway=0.05),
        True,
        "Use one device. The single device takes .* 59.*% less time than the program as it is",
    ),
    "live single fastest": (lambda: live(9, 8, 9.5), True, "Use one device. .* 15.8%"),
    "live single behind as it is": (lambda: live(9, 8, 2), False, "program as it is .2.00 ms"),
    "as it is does not run": (lambda: live(4, 8, None), True, "50.0% less time than a single"),
    "busy machine": (lambda: live(4, 8, 9, load=0.45), True, "50.0% less time"),
    "below the bound, raced": (lambda: live(1e-4, 8, 9), True, "100.0% less time|less time"),
    "below the bound, simulated": (
        lambda: outcome(single(8), row("auto", 1e-4), asked="auto"),
        False,
        "No gain: use one device",
    ),
    "fused": (fused, True, "50.0% less time than a single device"),
    "least memory": (memory_objective, True, "Smallest peak"),
    "by layer": (lambda: in_layers(described(6, 8), 0), True, "Plan of whole layers takes"),
    "race failed": (race_that_failed, False, "No gain: use one device"),
    "compared": (compared, False, "No gain: leave the program as it is .4.00 ms"),
    "method's own plan asked for": (
        lambda: outcome(row("hdp", 7), row("auto", 6), single(8)),
        True,
        "Hdp takes .* 12.5% less time",
    ),
    "a plan given": (
        lambda: outcome(row(GIVEN, 8, TOGETHER), single(8)),
        False,
        "No gain: use one device.*.the plan given. takes 8.00 ms: no less time",
    ),
    "called": (lambda: live(4, 8, 9).tried(True, 3e-3, 4e-3), True, "25.0% less time than the program as"),
    "called, no gain": (lambda: live(4, 8, 9).tried(False, 5e-3, 4e-3), False, "No gain: leave"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_said_and_written_agrees(kind, tmp_path):
    make, gains, words = KINDS[kind]
    told = check_says_one_thing(make(), tmp_path)
    assert told["gain"]["is_clear"] is gains
    assert re.search(words, told["headline"]), told["headline"]


@pytest.mark.parametrize(("load", "is_told"), [(None, False), (0.02, False), (0.45, True)])
def test_a_busy_machine_is_told_and_kept(load, is_told, tmp_path):
    found = live(4, 8, 9, load=load)
    assert check_says_one_thing(found, tmp_path)["load"] == load
    assert ("The machine was busy: other processes took 45.0% of its CPUs" in verdict(found)) == is_told


def test_a_row_below_its_bound_is_a_finding():
    quick = live(1e-4, 8, 9)
    assert "A finding: auto takes" in verdict(quick)
    assert "costs are taken for at least 200% too high" in verdict(quick)
    fault = KINDS["below the bound, simulated"][0]()
    assert "contradicts its own bound" in verdict(fault) and fault.recommended.name == SINGLE
    assert "A finding" not in verdict(fused()), "bounds are of plans that fuse nothing"


def test_as_it_is_is_recommended_where_no_plan_is_clearly_faster():
    assert live(4, 8, 3).recommended.name == AS_IT_IS
    assert live(4, 8, 5).recommended.name == "auto"
    assert compared().recommended.name == AS_IT_IS
    assert live(9, 8, 20).recommended.name == SINGLE
