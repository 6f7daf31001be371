"""Checker that all that is written and printed of an outcome says one thing."""

import io
import json
import pathlib
import re
from typing import Any

import rich.console

from tf_placer.base.quantities import milliseconds
from tf_placer.planning.outcome import SINGLE, Clock, Outcome
from tf_placer.problem.placement import Placement
from tf_placer.report.sentences import headline, verdict
from tf_placer.report.views import print_report, write_report


def check_says_one_thing(found: Outcome, out: pathlib.Path) -> dict[str, Any]:
    """Asserts that all that is written and printed of an outcome agrees; returns the summary."""
    write_report(found, out)
    told = json.loads((out / "summary.json").read_text(encoding="utf8"))
    page = (out / "report.html").read_text(encoding="utf8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    (section,) = json.loads(data[1])["sections"]
    console = rich.console.Console(file=io.StringIO(), width=300)
    print_report(found, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]

    said = headline(found)
    assert told["headline"] == section["headline"] == said == verdict(found).splitlines()[0]
    assert said in printed
    for text in (said, verdict(found), page, printed):
        assert not re.search(r"%\S* (faster|slower)", text)
    # The same rows in the same order, each time in the column of its clock.
    times = [[one.seconds(clock) for clock in Clock] for one in found.rows]
    fields = [clock.field for clock in Clock]
    assert [[one[name] for name in fields] for one in told["rows"]] == times
    assert [[one[name] for name in fields] for one in section["step_times"]] == times
    cells = [line.split("│") for line in printed.splitlines() if line.startswith("│")]
    titles = [cell[1].strip().removesuffix(", proven optimal") for cell in cells][: len(found.rows)]
    assert titles == [one["title"] for one in told["rows"]] == [one["name"] for one in section["step_times"]]
    # What is written is one row, whose plan the file has, and the headline is of it.
    (written,) = (one for one in told["rows"] if one["is_written"])
    assert [one["name"] for one in section["step_times"] if one["is_written"]] == [written["title"]]
    assert written["simulated_s"] == told["runtime_s"]
    plan = Placement.load(out / "placement.json", found.placement.problem)
    assert plan.device_names == found.placement.device_names
    gained = found.gain
    assert gained is not None and told["gain"]["plan_s"] == gained.plan_s == written[told["gain"]["clock"]]
    if found.search.least_memory is None:
        assert milliseconds(gained.plan_s) in said
        assert not gained.is_clear or re.search(r"% less time", said)
        assert said.startswith("No gain") == (
            not gained.is_clear and (gained.rival is not None or written["name"] == SINGLE)
        )
        # Whatever the table has first is what the headline is about.
        first = found.rows[0]
        if first.clock is found.row_written.clock and not first.is_below_bound:
            shown, text = milliseconds(first.seconds(gained.clock)), verdict(found).lower()
            is_told = first is gained.rival or shown == milliseconds(gained.plan_s)
            assert shown in text and (is_told or found.title_of(first).lower() in text)
    if gained.rival is not None:
        others = [one for one in found.rows if one is not found.row_written]
        at = [one.seconds(gained.clock) for one in others if one.is_single or one.is_as_it_is]
        assert gained.rival_s == min(s for s in at if s is not None) == told["gain"]["rival_s"]
    return told
