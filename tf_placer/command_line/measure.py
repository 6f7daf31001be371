"""`measure`: a plan on the runtime, beside single devices; `profile`: ops and links; `memory`: peaks, simulated."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import rich.console
import rich.table

from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import known, milliseconds, percentage, size
from tf_placer.calibration.build_problem import OpTimes, calibrated, profile
from tf_placer.command_line.place import read
from tf_placer.command_line.request import Request
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planning.forecast import BUILD, PROFILE, Forecast, compile_simulator, expect_profile
from tf_placer.planning.live import timed, workers
from tf_placer.planning.log import Log
from tf_placer.planning.outcome import GIVEN, Clock, Note, Outcome, Timed, single_rows
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Decisions, Placement, PlanFile
from tf_placer.report.sentences import doubts, headline
from tf_placer.search.memory import MOST_EXAMPLES, device_peaks, largest_batches, room_needed
from tf_placer.workers.connection import import_meanwhile

_TURNS = 20
_COSTLIEST, _UNMEASURED = 10, 5
_BATCHES, _BATCHES_S = "trying batches", 10.0


def measure(request: Request, plan: PlanFile, console: rich.console.Console) -> dict[str, Any]:
    """Times one step of the plan, of each single device and of the program as it is; prints a table, audits the plan.

    Each plan is timed by itself, and then those that ran take turns with the program as it is, because minutes of one
    machine differ by more than many plans do. Budget and seed of the request are not used.

    Returns:
      The same as JSON: ``steps``, a row of the table each, the plan's first; ``verdict``; ``gain``, ``load`` and
      ``timed_at_s`` as in summary.json; ``audit``, None where the plan did not run. Times are seconds, None where they
      are not known.

    Raises:
      InputError: the plan is for another graph or cluster.
    """
    log = Log(console)
    import_meanwhile(request.cluster)
    count = 1 + len(request.cluster.devices)
    with log:
        forecast = Forecast(request, log)
        log.announce([*forecast.reading(), *forecast.timing(count, " while the graph is built")])
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
    verdict = " ".join([headline(outcome), *doubts(outcome)])
    table, clocks = rich.table.Table(title=f"{problem.name} on {problem.cluster.name}"), [*Clock]
    clocks.remove(Clock.CALLED)
    table.add_column("step time of", overflow="fold")
    for column in (*(clock.value for clock in clocks), "quartiles", "status"):
        table.add_column(column, justify="right")
    for name, row in zip(names, rows, strict=False):
        spread = " - ".join(map(milliseconds, row.spread_s)) if row.spread_s else ""
        times = [milliseconds(row.seconds(clock)) for clock in clocks]
        table.add_row(name, *times, spread, row.message or row.status.name)
    console.print(table)
    console.print(verdict, soft_wrap=True)
    audited = None
    if audit is not None:
        console.print(f"audit of {plan.source}: {audit.summary()}", soft_wrap=True)
        audit.check()
        absent = {op: reason.name.lower() for op, reason in audit.absent.items()}
        audited = {"in_place": audit.in_place, "absent": absent, "added": audit.added}
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
        "verdict": verdict,
        "gain": None if outcome.gain is None else outcome.gain.as_data(),
        **{note.value: outcome.notes.get(note) for note in (Note.LOAD, Note.TIMED_AT_S)},
        "audit": audited,
    }


def show_profile(request: Request, console: rich.console.Console) -> dict[str, Any]:
    """Prints the profile of a program on the live cluster, measured or kept, and returns it as JSON, in seconds."""
    log = Log(console)
    with log:
        log.announce(Forecast(request, log).reading())
        compile_simulator(log)
        with log.phase(BUILD):
            item = request.source.item()
            problem = analytic_problem(item, request.cluster)
        with log.phase(PROFILE):
            expect_profile(request, item, log)
            measured = profile(item, problem)
    type_of = dict(zip(item.index.names, item.index.op_types, strict=True))
    for model, times in measured.op_times.items():
        _print_op_times(model, times, type_of, console)
    data: dict[str, Any] = {
        "workload": problem.name,
        "cluster": request.cluster.name,
        "devices": {
            model: {
                "step_s": times.step_s,
                "ops": {
                    op: {"type": type_of[op], "seconds": ns / 1e9}
                    for op, ns in sorted(times.op_ns.items(), key=lambda entry: -entry[1])
                },
                "unmeasured": list(times.unmeasured),
            }
            for model, times in measured.op_times.items()
        },
    }
    if measured.pair is None or measured.traffic is None:
        return {**data, "messages": None, "link": None, "join_s": None, "fit": None}
    table = rich.table.Table(title="one tensor from worker to worker")
    for column in ("bytes", "elapsed", "of both cores"):
        table.add_column(column, justify="right")
    for hop in measured.pair.hops:
        busy_ns = hop.send_ns + hop.receive_ns
        table.add_row(str(hop.num_bytes), f"{hop.elapsed_ns / 1e3:.0f} us", f"{busy_ns / 1e3:.0f} us")
    console.print(table)
    cluster = calibrated(problem, measured).cluster
    link, join_ns = cluster.links[0], cluster.join_ns().max()
    console.print(
        f"link: {link.latency_ns / 1e3:.0f} us on the way; the sender works {link.send_ns / 1e3:.0f} us + "
        f"{link.send_ps_per_byte / 1e3:.2f} ns a byte, the receiver {link.receive_ns / 1e3:.0f} us + "
        f"{link.receive_ps_per_byte / 1e3:.2f} ns a byte",
        soft_wrap=True,
    )
    console.print(f"a step with another worker in it takes {join_ns / 1e3:.0f} us more")
    count, error = len(measured.traffic.measured_s), measured.traffic.error
    console.print(
        f"fitted to {count} placements of a program of our own; median absolute error there {percentage(error)}",
        soft_wrap=True,
    )
    return {
        **data,
        "messages": [
            {
                "num_bytes": hop.num_bytes,
                "elapsed_s": hop.elapsed_ns / 1e9,
                "send_s": hop.send_ns / 1e9,
                "receive_s": hop.receive_ns / 1e9,
            }
            for hop in measured.pair.hops
        ],
        "link": dataclasses.asdict(link),
        "join_s": float(join_ns / 1e9),
        "fit": {"placements": count, "error": error},
    }


def _print_op_times(
    model: str, times: OpTimes, type_of: dict[str, str], console: rich.console.Console
) -> None:
    table = rich.table.Table(
        title=f"{model}: {milliseconds(times.step_s)} a step, {len(times.op_ns)} ops measured"
    )
    table.add_column("costliest ops", overflow="fold")
    table.add_column("type")
    table.add_column("time", justify="right")
    for name in sorted(times.op_ns, key=times.op_ns.__getitem__, reverse=True)[:_COSTLIEST]:
        table.add_row(name, type_of[name], milliseconds(times.op_ns[name] / 1e9))
    console.print(table)
    if times.unmeasured:
        console.print(
            f"{len(times.unmeasured)} ops did not run under their own name and count as free: "
            f"{', '.join(times.unmeasured[:_UNMEASURED])}, ...",
            soft_wrap=True,
        )


def memory(request: Request, console: rich.console.Console) -> dict[str, Any]:
    """Prints the peak of each device and the largest batch that fits, simulated; nothing of the program runs.

    Returns:
      The same as JSON: ``devices``, with bytes that each has, that a step with everything there takes, and that the
      smallest of some plain plans over all takes; ``batch``, ``largest_on_one``, ``largest_on_all`` and
      ``largest_recomputed``, all None for a program without a batch, which ``why_no_batch`` explains.
    """
    log, request = Log(console), dataclasses.replace(request, costs="analytic")
    with log:
        batches = log.expected(_BATCHES, _BATCHES_S, f"batches of {request.source.name}")
        log.announce([*Forecast(request, log).reading(), batches])
        form, cluster = read(request, log), request.cluster
        assert form.item is not None  # the command takes no profiled graph
        single, least = device_peaks(form.problem)
        keys = ("batch", "largest_on_one", "largest_on_all", "largest_recomputed", "why_no_batch")
        data: dict[str, Any] = dict.fromkeys(keys)
        with log.phase(_BATCHES):
            try:
                data |= zip(data, largest_batches(form.item, cluster), strict=False)
            except InputError as error:
                data["why_no_batch"] = str(error).partition(";")[0]
    table = rich.table.Table("device", title=f"peak memory of one step of {form.problem.name}, simulated")
    for column in ("has", "with everything there", "by a plan over all"):
        table.add_column(column, justify="right")
    rows = np.stack([cluster.capacity_bytes(), single, least], axis=1).tolist()
    for label, row in zip(cluster.labels, rows, strict=True):
        table.add_row(label, *map(size, row))
    console.print(table)
    if (room := room_needed(form.problem)) is not None:
        console.print(f"No single device holds the step: {room}.", soft_wrap=True)
    if data["why_no_batch"] is not None:
        console.print(f"The largest batch is not known: {data['why_no_batch']}.", soft_wrap=True)
    else:
        most = [f"{data[key]}{' or more' if data[key] == MOST_EXAMPLES else ''}" for key in keys[1:4]]
        text = f"The batch is {data['batch']}. The largest that fits: {most[0]} on one device, {most[1]} over all"
        if data["largest_recomputed"] > data["largest_on_one"]:
            text += f", {most[2]} on one with ops done again (`place --recompute=auto`)"
        console.print(f"{text}. `place --objective=memory` searches plans that take less.", soft_wrap=True)
    columns = ("name", "has_bytes", "everything_bytes", "least_bytes")
    named = zip(cluster.devices, rows, strict=True)
    devices = [dict(zip(columns, (device.name, *row), strict=True)) for device, row in named]
    return {"workload": form.problem.name, "cluster": cluster.name, "devices": devices, **data}
