"""Commands that look at a plan or a program: `measure`, `explain`, `profile` and `memory`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import rich.console
from rich.table import Column, Table

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.quantities import excess, in_unit, known, milliseconds, percentage, size
from tf_placer.calibration.build_problem import calibrated, profile
from tf_placer.calibration.refit import Correction
from tf_placer.command_line.request import Request
from tf_placer.evaluation.simulated import SimulatedEvaluator, Status
from tf_placer.graph.item import Item
from tf_placer.planning.find import read
from tf_placer.planning.forecast import BUILD, PROFILE, Forecast, compile_simulator, expect_profile
from tf_placer.planning.live import timed, workers
from tf_placer.planning.log import Log
from tf_placer.planning.outcome import GIVEN, Clock, Note, Outcome, Timed, single_rows
from tf_placer.problem.analytic_problem import analytic_problem, units_of, why_not_allowed
from tf_placer.problem.layers import layer_of_unit, layers_of
from tf_placer.problem.placement import NO_CLUSTER, Decisions, Placement, PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import crossings
from tf_placer.report.sentences import doubts, headline
from tf_placer.search.memory import MOST_EXAMPLES, device_peaks, largest_batches, room_needed
from tf_placer.workers.local_workers import import_meanwhile

_TURNS = 20
_COSTLIEST, _UNMEASURED, _LISTED = 10, 5, 8
_BATCHES, _BATCHES_S = "trying batches", 10.0


def measure(request: Request, plan: PlanFile, console: rich.console.Console) -> dict[str, Any]:
    """Times one step of the plan, of each single device and of the program as it is; prints a table, audits the plan.

    Each plan is timed by itself, and then those that ran take turns with the program as it is, because minutes of one
    machine differ by more than many plans do. Budget and seed of the request are not used.

    Returns:
      The same as JSON: ``steps``, a row of the table each, the plan's first; ``verdict``; ``gain``, ``load`` and
      ``timed_at_s`` as in summary.json; ``audit``, None where the plan did not run. Times are seconds, None where they
      are not known.
    """
    import_meanwhile(request.cluster)
    count = 1 + len(request.cluster.devices)
    with Log(console) as log:
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
    clocks = [clock for clock in Clock if clock is not Clock.CALLED]
    columns = (*(clock.value for clock in clocks), "quartiles", "status")
    table = _table(f"{problem.name} on {problem.cluster.name}", "step time of", columns)
    steps = []
    for name, row in zip(names, rows, strict=False):
        spread = " - ".join(map(milliseconds, row.spread_s)) if row.spread_s else ""
        times = [milliseconds(row.seconds(clock)) for clock in clocks]
        table.add_row(name, *times, spread, row.message or row.status.name)
        step = {"of": name, **{clock.field: row.seconds(clock) for clock in Clock}, "spread_s": row.spread_s}
        steps.append(step | {"status": row.status.name, "message": row.message})
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
        "steps": steps,
        "verdict": verdict,
        "gain": None if outcome.gain is None else outcome.gain.as_data(),
        **{note.value: outcome.notes.get(note) for note in (Note.LOAD, Note.TIMED_AT_S)},
        "audit": audited,
    }


def show_profile(request: Request, console: rich.console.Console) -> dict[str, Any]:
    """Prints and returns the profile of a program on the live cluster, measured or kept; JSON in seconds."""
    with Log(console) as log:
        log.announce(Forecast(request, log).reading())
        compile_simulator(log)
        with log.phase(BUILD):
            item = request.source.item()
            problem = analytic_problem(item, request.cluster)
        with log.phase(PROFILE):
            expect_profile(request, item, log)
            measured = profile(item, problem)
    type_of = dict(zip(item.index.names, item.index.op_types, strict=True))
    devices: dict[str, Any] = {}
    for model, times in measured.op_times.items():
        title = f"{model}: {milliseconds(times.step_s)} a step, {len(times.op_ns)} ops measured"
        table = _table(title, "costliest ops", ("type", "time"))
        costliest = sorted(times.op_ns.items(), key=lambda entry: -entry[1])
        for name, nanoseconds in costliest[:_COSTLIEST]:
            table.add_row(name, type_of[name], milliseconds(nanoseconds / 1e9))
        console.print(table)
        ops = {name: {"type": type_of[name], "seconds": ns / 1e9} for name, ns in costliest}
        devices[model] = {"step_s": times.step_s, "ops": ops, "unmeasured": list(times.unmeasured)}
        if times.unmeasured:
            names = ", ".join(times.unmeasured[:_UNMEASURED])
            why = "ops did not run under their own name and count as free"
            console.print(f"{len(times.unmeasured)} {why}: {names}, ...", soft_wrap=True)
    data: dict[str, Any] = {"workload": problem.name, "cluster": request.cluster.name, "devices": devices}
    if measured.pair is None or measured.traffic is None:
        return data | dict.fromkeys(("messages", "link", "join_s", "fit"))
    columns = (Column(name, justify="right") for name in ("bytes", "elapsed", "of both cores"))
    table = Table(*columns, title="one tensor from worker to worker")
    messages = []
    for hop in measured.pair.hops:
        busy_ns = hop.send_ns + hop.receive_ns
        table.add_row(str(hop.num_bytes), f"{hop.elapsed_ns / 1e3:.0f} us", f"{busy_ns / 1e3:.0f} us")
        times_s = {f"{name}_s": getattr(hop, f"{name}_ns") / 1e9 for name in ("elapsed", "send", "receive")}
        messages.append({"num_bytes": hop.num_bytes, **times_s})
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
    data |= {"messages": messages, "link": dataclasses.asdict(link), "join_s": float(join_ns / 1e9)}
    return data | {"fit": {"placements": count, "error": error}}


def memory(request: Request, console: rich.console.Console) -> dict[str, Any]:
    """Prints the peak of each device and the largest batch that fits, simulated; nothing of the program runs.

    Returns:
      The same as JSON: ``devices``, with bytes that each has, that a step with everything there takes, and that the
      smallest of some plain plans over all takes; ``batch``, ``largest_on_one``, ``largest_on_all`` and
      ``largest_recomputed``, all None for a program without a batch, which ``why_no_batch`` explains.
    """
    request = dataclasses.replace(request, costs="analytic")
    with Log(console) as log:
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
    columns = ("has", "with everything there", "by a plan over all")
    table = _table(f"peak memory of one step of {form.problem.name}, simulated", "device", columns)
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
    fields = ("name", "has_bytes", "everything_bytes", "least_bytes")
    pairs = zip(cluster.devices, rows, strict=True)
    devices = [dict(zip(fields, (device.name, *row), strict=True)) for device, row in pairs]
    return {"workload": form.problem.name, "cluster": cluster.name, "devices": devices, **data}


def explain(
    request: Request, plan: PlanFile, op: str | None, layer: str | None, console: rich.console.Console
) -> dict[str, Any]:
    """Prints the device of an op or a layer with reasons, its transfers, and a table of moves.

    Either an ``op`` or a ``layer`` is named; layers inside it are part of it. The request's budget and seed are unused.

    Returns:
      The same as JSON: of an op its unit and ``ties``, the rules that make it one; of a layer its ``devices``, the
      layers ``inside`` it and ``apart``, the first ops of units that are not where most are; of both ``sends`` and
      ``receives``, the largest first, and ``moves``, one for each device.
    """
    what, name = ("op", str(op)) if layer is None else ("layer", layer)

    def check(item: Item, problem: Problem) -> None:
        Placement.from_plan(plan, _as_searched(problem, plan))
        names = problem.op_names if layer is None else layers_of(problem).names
        if name not in names:
            raise InputError(f"--{what}={name}: {problem.name!r} has no such {what}; {nearest(name, names)}")

    with Log(console) as log:
        log.announce(Forecast(request, log).reading())
        form = read(request, log, check)
    item, problem = form.item, _as_searched(form.problem, plan)
    assert item is not None  # no profiled graph is explained
    placement = Placement.from_plan(plan, problem)
    if layer is None:
        about, lines, units = _of_op(item, placement, name)
        subject, moved, title = "Its unit", "unit", f"{name} and its unit"
    else:
        about, lines, units = _of_layer(placement, name)
        subject, moved, title = "It", "layer", f"all of {name}"
    for verb, tensors in _crossing(placement, units).items():
        num_bytes = sum(tensor["num_bytes"] for tensor in tensors)
        lines.append(f"{subject} {verb} {len(tensors)} tensors, {in_unit(num_bytes, 'MB')} a step.")
        lines += [
            f"  {in_unit(tensor['num_bytes'], 'MB')} of {tensor['op']}, {tensor['source']} -> {tensor['target']}"
            for tensor in tensors[:_LISTED]
        ]
        about[verb] = tensors
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
    op_id = item.index.id_of_name[name] if layer is None else None
    moves = _moves(item, placement, units, op_id) if len(units) else []
    if moves:
        title += " and what is fused with it" if len(_moving(placement, units)) > len(units) else ""
        table = _table(f"{title} elsewhere", "on", (f"{moved}'s work", "step, simulated"))
        table.add_column("change", overflow="fold")
        for move in moves:
            step_s, change_s, status = move["step_s"], move["change_s"], move["status"]
            share = None if change_s is None else excess(step_s, step_s - change_s)
            change = f"{milliseconds(change_s, signed=True)} ({percentage(share, signed=True)})"
            if status != Status.OK.name:
                change = f"{'not there' if status == Status.ILLEGAL.name else status}: {move['message']}"
            elif move["is_planned"]:
                change = "as planned"
            table.add_row(move["on"], milliseconds(move["work_s"]), milliseconds(step_s), change)
        console.print(table)
    return {**about, "moves": moves}


def _crossing(placement: Placement, units: np.ndarray) -> dict[str, list[dict[str, Any]]]:
    """Tensors that some units send to and receive from other devices, the largest first."""
    problem, graph = placement.problem, placement.problem.op_graph
    names, device = [device.name for device in problem.cluster.devices], placement.device_of_op
    member = np.isin(problem.unit_of_op, units)
    read = member[graph.consumer] & ~member[graph.producer]
    read_there = set(zip(graph.producer[read].tolist(), device[graph.consumer[read]].tolist(), strict=True))
    tensors: dict[str, list[dict[str, Any]]] = {"sends": [], "receives": []}
    for tensor in crossings(problem, placement.device_of_unit):
        row = {
            "op": problem.op_names[tensor.op],
            "source": names[tensor.source],
            "target": names[tensor.target],
            "num_bytes": int(tensor.num_bytes),
        }
        if member[tensor.op]:
            tensors["sends"].append(row)
        if (tensor.op, tensor.target) in read_there:
            tensors["receives"].append(row)
    return tensors


def _as_searched(problem: Problem, plan: PlanFile) -> Problem:
    """The problem with the costs of the plan's search, corrected by its measurements."""
    factors = plan.made_for.get("correction")
    if factors is None:
        return problem
    fields = len(dataclasses.fields(Correction))
    is_legal = isinstance(factors, list) and len(factors) == fields
    if not is_legal or not all(isinstance(factor, int | float) and factor > 0 for factor in factors):
        raise InputError(
            f"{plan.source}: made_for.correction is {factors!r}; give {fields} factors above 0, or leave it out"
        )
    return Correction(*factors).apply(problem)


def _of_op(item: Item, placement: Placement, name: str) -> tuple[dict[str, Any], list[str], np.ndarray]:
    """Description of an op as JSON and in sentences, and its unit."""
    problem = placement.problem
    op = item.index.id_of_name[name]
    units = units_of(item)
    members = units.members(int(units.unit_of_op[op]))
    inside = set(members.tolist()) if len(members) > 1 else set()
    merges = [merge for merge in units.merges if merge.op_a in inside]
    merges.sort(key=lambda merge: op not in (merge.op_a, merge.op_b))  # what ties the op itself comes first
    d = int(placement.device_of_op[op])
    device, compute_s = problem.cluster.devices[d].name, float(problem.compute_ns[op, d] / 1e9)
    shapes = ", ".join(str(list(shape)) for shape in problem.output_shapes[op]) or "nothing"
    about: dict[str, Any] = {
        "op": name,
        "type": problem.op_types[op],
        "gives": problem.output_shapes[op],
        "device": device,
        "compute_s": compute_s,
        "unit": [problem.op_names[member] for member in members],
        "ties": [{"reason": merge.reason, "rule": merge.rule} for merge in merges],
    }
    lines = [
        f"{name} ({problem.op_types[op]}, gives {shapes}) is on {device}, where it takes {milliseconds(compute_s)}."
    ]
    if len(members) == 1:
        lines.append("It is a unit by itself: nothing ties it to another op.")
    else:
        lines.append(f"It is one of {len(members)} ops that must be together:")
        lines += [f"  {merge.reason} ({merge.rule})" for merge in merges[:_LISTED]]
        lines += [f"  and {len(merges) - _LISTED} more ties"] if len(merges) > _LISTED else []
    priority, clusters = placement.priority_of_op, placement.cluster_of_op
    if priority is not None:
        rivals = priority[placement.device_of_op == d]
        before = int((rivals < priority[op]).sum())
        lines.append(
            f"Its priority is {priority[op]}: {before} of the {len(rivals)} ops there come before it."
        )
        about["priority"] = int(priority[op])
    if clusters is not None and clusters[op] != NO_CLUSTER:
        fused = np.flatnonzero(clusters == clusters[op]).tolist()
        names = [problem.op_names[member] for member in fused if member != op]
        lines.append(
            f"It is fused with {len(names)} others in cluster {clusters[op]}, and moves with them: {_some(names)}."
        )
        about |= {"cluster": int(clusters[op]), "fused_with": names}
    return about, lines, problem.unit_of_op[[op]]


def _of_layer(placement: Placement, name: str) -> tuple[dict[str, Any], list[str], np.ndarray]:
    """Description of a layer as JSON and in sentences, and its units."""
    problem, device = placement.problem, placement.device_of_op
    layers = layers_of(problem)
    layer = layers.names.index(name)
    units = np.flatnonzero(layers.is_inside(layer)[layer_of_unit(problem, layers)])
    member = np.isin(problem.unit_of_op, units)
    on = placement.device_of_unit[units]
    most = int(np.bincount(on).argmax()) if len(units) else 0
    strays = [problem.name_of_unit(int(unit)) for unit in units[on != most]]
    inside = [layers.names[child] for child in layers.children[layer]]
    elsewhere = int((layers.is_inside(layer)[layers.layer_of_op] & ~member).sum())
    devices = {}
    for d in np.unique(device[member]).tolist():
        ops = member & (device == d)
        compute_s = float(problem.compute_ns[ops, d].sum() / 1e9)
        devices[problem.cluster.devices[d].name] = {"ops": int(ops.sum()), "compute_s": compute_s}
    lines = [f"{name} has {int(member.sum())} ops in {len(units)} units."]
    if elsewhere:
        lines.append(
            f"{elsewhere} more of its ops must be with ops that are mostly of other layers, and go there."
        )
    lines += [
        f"{share['ops']} ops are on {name}, where they take {milliseconds(share['compute_s'])}."
        for name, share in devices.items()
    ]
    lines += [f"Layers inside it: {_some(inside)}."] if inside else []
    lines += [f"{len(strays)} units are not where most are: {_some(strays)}."] if strays else []
    clusters = placement.cluster_of_op
    fused = np.zeros(0, int) if clusters is None else clusters[member & (clusters != NO_CLUSTER)]
    if len(fused):
        lines.append(
            f"{len(fused)} of its ops are fused, in {len(np.unique(fused))} clusters that move whole."
        )
    about = {
        "layer": name,
        "ops": int(member.sum()),
        "units": len(units),
        "tied_elsewhere": elsewhere,
        "devices": devices,
        "inside": inside,
        "apart": strays,
        "clusters": np.unique(fused).tolist(),
    }
    return about, lines, units


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + rest


def _moving(placement: Placement, units: np.ndarray) -> np.ndarray:
    """These units and all that have to move with them, because a cluster is on one device."""
    clusters, unit_of_op = placement.cluster_of_op, placement.problem.unit_of_op
    if clusters is None:
        return units
    count = 0
    while len(units) > count:
        count = len(units)
        inside = np.isin(unit_of_op, units) & (clusters != NO_CLUSTER)
        units = np.union1d(units, unit_of_op[np.isin(clusters, clusters[inside])])
    return units


def _moves(item: Item, placement: Placement, units: np.ndarray, op: int | None) -> list[dict[str, Any]]:
    """Simulated steps with units, at least one, and ops fused with them, on each device in turn.

    ``op`` is the one whose unit it is, None of a layer.
    """
    problem = placement.problem
    now = placement.device_of_unit
    own, units = units, _moving(placement, units)
    may = problem.allowed[units]
    if placement.cluster_of_op is not None:  # a cluster moves whole
        fused = problem.unit_of_op[placement.cluster_of_op != NO_CLUSTER]
        may = may & may[np.isin(units, fused)].all(axis=0)
    legal = np.flatnonzero(may.any(axis=0)).tolist()
    rows = np.repeat(now[np.newaxis], len(legal) + 1, axis=0)  # the plan itself is the last
    for row, d in enumerate(legal):
        rows[row, units] = np.where(problem.allowed[units, d], d, now[units])
    decided = Decisions.joined([placement.decisions] * len(rows))
    simulated = SimulatedEvaluator(problem).evaluate(dataclasses.replace(decided, device_of_unit=rows))
    ops = np.flatnonzero(np.isin(problem.unit_of_op, units))
    moves: list[dict[str, Any]] = []
    for d, device in enumerate(problem.cluster.devices):
        move: dict[str, Any] = {"on": device.name, "is_planned": False}
        move |= dict.fromkeys(("work_s", "step_s", "change_s"))  # of an illegal one
        if d in legal:
            row = legal.index(d)
            step_s = simulated.runtime_s[row]
            work_ns = problem.compute_ns[ops, rows[row][problem.unit_of_op[ops]]].sum()
            move |= {"is_planned": bool((rows[row] == now).all()), "work_s": float(work_ns / 1e9)}
            move |= {"step_s": known(step_s), "change_s": known(step_s - simulated.runtime_s[-1])}
            move |= {"status": Status(int(simulated.status[row])).name, "message": simulated.messages[row]}
        else:
            why = "no op of it can be" if op is None else why_not_allowed(item, problem, op, d)
            why = "what is fused with it cannot be" if problem.allowed[own, d].any() else why
            move |= {"status": Status.ILLEGAL.name, "message": why}
        moves.append(move)
    return moves


def _table(title: str, subject: str, columns: Sequence[str]) -> Table:
    """A table with a column of names, which fold, and columns at the right."""
    right = (Column(column, justify="right") for column in columns)
    return Table(Column(subject, overflow="fold"), *right, title=title)
