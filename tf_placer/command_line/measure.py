"""Timing of a plan on the runtime, compared with every single device."""

from __future__ import annotations

import dataclasses
from typing import Any

import rich.console
import rich.table

from tf_placer.base.quantities import known, milliseconds
from tf_placer.command_line.check_flags import check_runs_on
from tf_placer.command_line.place import read
from tf_placer.command_line.request import Request
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planning.forecast import reading, timing
from tf_placer.planning.log import Log
from tf_placer.planning.outcome import GIVEN, Clock, Note, Outcome, Timed, single_rows
from tf_placer.planning.race import timed, workers
from tf_placer.problem.placement import Decisions, Placement, PlanFile
from tf_placer.report.sentences import finding_sentences, headline, load_sentences
from tf_placer.runtime.audit import Audit
from tf_placer.workers.connection import import_meanwhile

_TURNS = 20


def measure(request: Request, plan: PlanFile, console: rich.console.Console) -> dict[str, Any]:
    """Times one step of the plan, of each single device and of the program as it is; prints a table, audits the plan.

    Each plan is timed by itself, and then those that ran take turns with the program as it is, because minutes of one
    machine differ by more than many plans do.

    Args:
      request: the workload and the live cluster; budget and seed are not used.
      plan: for this workload and cluster.
      console: is shown the table.

    Returns:
      The same as JSON: ``steps``, a row of the table each, the plan's first; ``verdict``; ``gain``, ``load`` and
      ``timed_at_s`` as in summary.json; ``audit``, None where the plan did not run. Times are seconds, None where they
      are not known.

    Raises:
      InputError: the cluster is not live, or the plan is for another graph or cluster.
    """
    found, audit = _time(request, plan, console)
    console.print(_table(found))
    console.print(found["verdict"], soft_wrap=True)
    if audit is not None:
        console.print(f"audit of {plan.source}: {audit.summary()}", soft_wrap=True)
        audit.check()
    return found


def _time(
    request: Request, plan: PlanFile, console: rich.console.Console
) -> tuple[dict[str, Any], Audit | None]:
    check_runs_on("measure", request.cluster.name, request.cluster.is_live)

    log = Log(console)
    import_meanwhile(request.cluster)
    count = 1 + len(request.cluster.devices)
    with log:
        log.announce([*reading(request, log), *timing(request, count, log, " while the graph is built")])
        whole = read(request, log, lambda _, problem: Placement.from_plan(plan, problem))
        problem = whole.problem
        placement = Placement.from_plan(plan, problem)
        rows = [Timed(GIVEN, placement), *single_rows(problem)]
        with workers(request, whole, log) as on_devices:
            rows, race = timed(rows, on_devices.runtime, log, _TURNS, confidence=1.0)
            runs = rows[0].measured_s is not None
            audit = on_devices.runtime.audit(placement.decisions) if runs else None
    plans = Decisions.joined([row.placement.decisions for row in rows if row.placement is not None])
    simulated_s = iter(SimulatedEvaluator(problem).evaluate(plans).runtime_s)
    rows = [
        row if row.placement is None else dataclasses.replace(row, simulated_s=known(next(simulated_s)))
        for row in rows
    ]
    devices = [f"everything on {device.name}" for device in problem.cluster.devices]
    names = (plan.source, *devices, *(row.title for row in rows if row.is_as_it_is))
    notes = {} if race is None else race.verdict(rows[0])
    outcome = Outcome(whole, rows[0], tuple(rows[1:]), notes=notes)
    sentences = [headline(outcome), *finding_sentences(outcome), *load_sentences(outcome)]
    return {
        "workload": problem.name,
        "cluster": problem.cluster.name,
        "steps": [
            {
                "of": name,
                **{clock.field: row.seconds(clock) for clock in Clock},
                "spread_s": row.spread_s,
                "status": row.status.name,
                "message": row.message,
            }
            for name, row in zip(names, rows, strict=False)
        ],
        "verdict": " ".join(sentences),
        "gain": None if outcome.gain is None else outcome.gain.as_data(),
        **{note.value: outcome.notes.get(note) for note in (Note.LOAD, Note.TIMED_AT_S)},
        "audit": None
        if audit is None
        else {
            "in_place": audit.in_place,
            "absent": {op: reason.name.lower() for op, reason in audit.absent.items()},
            "added": audit.added,
        },
    }, audit


def _table(found: dict[str, Any]) -> rich.table.Table:
    table = rich.table.Table(title=f"{found['workload']} on {found['cluster']}")
    table.add_column("step time of", overflow="fold")
    clocks = [clock for clock in Clock if clock is not Clock.CALLED]
    for column in (*(clock.value for clock in clocks), "quartiles", "status"):
        table.add_column(column, justify="right")
    for row in found["steps"]:
        times = [milliseconds(row[clock.field]) for clock in clocks]
        spread = " - ".join(map(milliseconds, row["spread_s"])) if row["spread_s"] else ""
        table.add_row(row["of"], *times, spread, row["message"] or row["status"])
    return table
