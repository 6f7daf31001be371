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


def row(name: str, simulated_s: float | None, placement: Placement | None = APART, **more: Any) -> Timed:
    """A row of a search of this problem, said to take so long."""
    found = search(PROBLEM, "random", budget_evaluations=8)
    if placement is None:
        return Timed(name, **more)
    given = dataclasses.replace(found, placement=placement, runtime_s=simulated_s or 1.0, found_by=name)
    return Timed.of_search(name, given, **more)


def raced(*rows: tuple[Timed, float], as_it_is: float | None, sway: float = 0.0) -> list[Timed]:
    """Rows after a race in which each takes so long; with some sway none is clearly ahead."""
    turns = 1 + sway * np.where(np.arange(20) % 2, 1, -1)
    samples = [(seconds * (turns if i % 2 else 1 / turns)).tolist() for i, (_, seconds) in enumerate(rows)]
    timed = [dataclasses.replace(one, measured_s=0.9 * seconds) for one, seconds in rows]
    if as_it_is is not None:
        timed.append(Timed(AS_IT_IS))
        samples.append([as_it_is] * 20)
    return with_race(timed, samples)


def outcome(written: Timed, *beside: Timed, **more: Any) -> Outcome:
    return Outcome(Form(PROBLEM), written, beside, **more)


def live(plan_s, single_s, as_it_is_s, sway=0.0, load=None) -> Outcome:
    """A live search that decided as it does: a plan that is clearly faster than a single device, or that."""
    plan, single, *behind = raced(
        (row("auto", 9 * MS), plan_s),
        (row(SINGLE, 8 * MS, TOGETHER), single_s),
        as_it_is=as_it_is_s,
        sway=sway,
    )
    is_ahead = plan_s < single_s and not sway
    written, other = (plan, single) if is_ahead else (single, plan)
    notes = {Note.WHY: "turn by turn", Note.DECIDED: written.name, Note.LOAD: load}
    return outcome(written, other, *behind, asked="auto", notes=notes)


def described(plan_s: float, single_s: float) -> Outcome:
    return outcome(row("auto", plan_s), row(SINGLE, single_s, TOGETHER))


def memory_objective() -> Outcome:
    least = search(PROBLEM, "random", budget_evaluations=8, objective="memory", slow_down=0.5)
    return outcome(Timed.of_search("random", least), row(SINGLE, 8 * MS, TOGETHER))


def fused() -> Outcome:
    plan, plain, single, *behind = raced(
        (row(FUSED, 5 * MS, dataclasses.replace(APART, cluster_of_op=[0, -1, 0])), 4 * MS),
        (row("auto", 6 * MS), 5 * MS),
        (row(SINGLE, 8 * MS, TOGETHER), 8 * MS),
        as_it_is=9 * MS,
    )
    notes = {Note.WHY: "w", Note.DECIDED: FUSED, Note.FUSED: "2 ops are fused."}
    return outcome(plan, plain, single, *behind, asked="auto", notes=notes)


def race_that_failed() -> Outcome:
    rows = [
        dataclasses.replace(row("auto", 6 * MS), measured_s=7 * MS, message="the race failed"),
        dataclasses.replace(row(SINGLE, 8 * MS, TOGETHER), measured_s=7.1 * MS),
    ]
    return outcome(*rows)


def split_written() -> Outcome:
    return outcome(
        row(SPLIT, 4 * MS),
        row("auto", 6 * MS),
        row(DATA_PARALLEL, 5 * MS),
        row(SINGLE, 8 * MS, TOGETHER),
        asked="auto",
    )


def does_not_fit() -> Outcome:
    single = Timed(SINGLE, status=Status.OUT_OF_MEMORY, message="too large")
    return outcome(row("auto", 6 * MS), single, row("heft", 7 * MS))


def compared() -> Outcome:
    return outcome(*raced((row("heft", 5 * MS), 5 * MS), (row("hdp", 4 * MS), 6 * MS), as_it_is=4 * MS))


# Kind -> the outcome, whether it gains, and words of its headline.
KINDS: dict[str, tuple[Callable[[], Outcome], bool, str]] = {
    "described gain": (lambda: described(6 * MS, 8 * MS), True, "simulator, 25.0% less time than a single"),
    "described gain too small": (
        lambda: described(7.98 * MS, 8 * MS),
        False,
        "No gain: use one device .8.00 ms in the simulator.*0.2% less time, which is not worth a plan",
    ),
    "described loss": (
        lambda: outcome(row("auto", 9 * MS), row(SINGLE, 8 * MS, TOGETHER)),
        False,
        "No gain: use one device.*12.5% more time",
    ),
    "single written": (
        lambda: outcome(row(SINGLE, 8 * MS, TOGETHER), row("auto", 9 * MS), asked="auto"),
        False,
        "No gain: use one device. It takes 8.00 ms",
    ),
    "single written, split would gain": (
        lambda: outcome(
            row(SINGLE, 8 * MS, TOGETHER),
            row("auto", 9 * MS),
            row(DATA_PARALLEL, 5 * MS, is_candidate=False),
            asked="auto",
        ),
        False,
        "No gain: use one device or split the batch",
    ),
    "one device does not hold it": (does_not_fit, False, "No single device was timed; auto"),
    "parts win": (split_written, True, "Split and placed takes .* 50.0% less time than a single device"),
    "live gain": (lambda: live(4 * MS, 8 * MS, 9 * MS), True, "turn on the runtime, 50.0% less time than a"),
    "live gain, as it is second": (lambda: live(4 * MS, 8 * MS, 5 * MS), True, "20.0% .* program as it is"),
    "as it is fastest": (
        lambda: live(4 * MS, 8 * MS, 3 * MS),
        False,
        "No gain: leave the program as it is .3.00 ms.*.auto. takes 4.00 ms: 33.3% more time",
    ),
    "live within noise": (
        lambda: live(8 * MS, 8.1 * MS, 20 * MS, sway=0.05),
        True,
        "Use one device. The single device takes .* 59.*% less time than the program as it is",
    ),
    "live single fastest": (lambda: live(9 * MS, 8 * MS, 9.5 * MS), True, "Use one device. .* 15.8%"),
    "live single behind as it is": (lambda: live(9 * MS, 8 * MS, 2 * MS), False, "program as it is .2.00 ms"),
    "as it is does not run": (lambda: live(4 * MS, 8 * MS, None), True, "50.0% less time than a single"),
    "busy machine": (lambda: live(4 * MS, 8 * MS, 9 * MS, load=0.45), True, "50.0% less time"),
    "below the bound, raced": (lambda: live(100e-9, 8 * MS, 9 * MS), True, "100.0% less time|less time"),
    "below the bound, simulated": (
        lambda: outcome(row(SINGLE, 8 * MS, TOGETHER), row("auto", 100e-9), asked="auto"),
        False,
        "No gain: use one device",
    ),
    "fused": (fused, True, "50.0% less time than a single device"),
    "least memory": (memory_objective, True, "Smallest peak"),
    "by layer": (lambda: in_layers(described(6 * MS, 8 * MS), 0), True, "Plan of whole layers takes"),
    "race failed": (race_that_failed, False, "No gain: use one device"),
    "compared": (compared, False, "No gain: leave the program as it is .4.00 ms"),
    "method's own plan asked for": (
        lambda: outcome(row("hdp", 7 * MS), row("auto", 6 * MS), row(SINGLE, 8 * MS, TOGETHER)),
        True,
        "Hdp takes .* 12.5% less time",
    ),
    "a plan given": (
        lambda: outcome(row(GIVEN, 8 * MS, TOGETHER), row(SINGLE, 8 * MS, TOGETHER)),
        False,
        "No gain: use one device.*.the plan given. takes 8.00 ms: no less time",
    ),
    "called": (
        lambda: live(4 * MS, 8 * MS, 9 * MS).tried(True, 3 * MS, 4 * MS),
        True,
        "25.0% less time than the program as",
    ),
    "called, no gain": (
        lambda: live(4 * MS, 8 * MS, 9 * MS).tried(False, 5 * MS, 4 * MS),
        False,
        "No gain: leave",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_said_and_written_agrees(kind, tmp_path):
    make, gains, words = KINDS[kind]
    told = check_says_one_thing(make(), tmp_path)
    assert told["gain"]["is_clear"] is gains
    assert re.search(words, told["headline"]), told["headline"]


@pytest.mark.parametrize(("load", "is_told"), [(None, False), (0.02, False), (0.45, True)])
def test_a_busy_machine_is_told_and_kept(load, is_told, tmp_path):
    found = live(4 * MS, 8 * MS, 9 * MS, load=load)
    assert check_says_one_thing(found, tmp_path)["load"] == load
    assert ("The machine was busy: other processes took 45.0% of its CPUs" in verdict(found)) == is_told


def test_a_row_below_its_bound_is_a_finding():
    quick = live(100e-9, 8 * MS, 9 * MS)
    assert "A finding: auto takes" in verdict(quick)
    assert "costs are taken for at least 200% too high" in verdict(quick)
    fault = KINDS["below the bound, simulated"][0]()
    assert "contradicts its own bound" in verdict(fault) and fault.recommended.name == SINGLE
    assert "A finding" not in verdict(fused()), "bounds are of plans that fuse nothing"


def test_as_it_is_is_recommended_where_no_plan_is_clearly_faster():
    assert live(4 * MS, 8 * MS, 3 * MS).recommended.name == AS_IT_IS
    assert live(4 * MS, 8 * MS, 5 * MS).recommended.name == "auto"
    assert compared().recommended.name == AS_IT_IS
    assert live(9 * MS, 8 * MS, 20 * MS).recommended.name == SINGLE
