"""Sentences of an outcome: the plan that won, its gain and how certain it is, and what to know before relying on it."""

from __future__ import annotations

import itertools
import json
import math
import pathlib
from collections import Counter

import numpy as np

from tf_placer.base.quantities import excess, gain, milliseconds, percentage, size
from tf_placer.cluster.cluster import Cluster, short_device_name
from tf_placer.graph.program import SHARED
from tf_placer.planning.outcome import (
    DATA_PARALLEL,
    GIVEN,
    SAME,
    SPLIT,
    Clock,
    Note,
    Outcome,
    Timed,
    clock_of,
)
from tf_placer.problem.layers import layers_of_parts
from tf_placer.problem.placement import Placement
from tf_placer.search.recorder import SearchResult
from tf_placer.transform.fusion import savings

FIGURES = pathlib.Path(__file__).with_name("gpu_fidelity.json")  # of simulated GPUs beside real ones
ALL = "all"  # GPUs of the page together
_PAGE = "docs/results/gpu_fidelity.md"
_BOUNDS = "Lower bounds are those of plans that fuse nothing; a plan with clusters may take less."
_MOST_RUNS = 4  # of layers that are told by name
_LEAST = 5e-4  # share of the time of all layers with which one is told
_RIVALS = {True: "the program as it is on the whole machine", False: "a single device"}
_HOW = {
    Clock.SIMULATED: "in the simulator",
    Clock.MEASURED: "on the runtime, each timed by itself",
    Clock.RACED: "in turn on the runtime",
    Clock.CALLED: "in the first calls",
}


def verdict(outcome: Outcome) -> str:
    """The headline, and below it what to know of the plan: other plans, memory, layers, the batch, the machine."""
    return "\n".join([headline(outcome), *notes(outcome)])


def notes(outcome: Outcome) -> list[str]:
    """Paragraphs below the headline."""
    return [
        *_other_plans(outcome),
        *doubts(outcome),
        *plan_in_parts_sentences(outcome.placement),
        *schedule_sentences(outcome),
        *fit_sentences(outcome),
        *_layer_sentences(outcome),
        *split_batch_sentences(outcome),
    ]


def headline(outcome: Outcome) -> str:
    """What the plan that is written gains, by one clock, beside the best of what needs no plan; or that it does not."""
    search = outcome.written.search
    if search is not None and search.least_memory is not None:
        return least_memory_sentence(search)
    row, gained = outcome.row_written, outcome.gain
    title = f"the {row.title}" if row.is_single else outcome.title_of(row)
    if gained is None:
        return f"{capital(title)} did not run: {row.status.name}."
    how, takes = _HOW[gained.clock], milliseconds(gained.plan_s)
    if gained.rival is None and not row.is_single:
        return f"No single device was timed; {title} takes {takes} {how}."
    less = gain(gained.saved)
    # Whether data parallelism takes less than what needs no plan, by the same clock.
    rows = [row for row in (outcome.written, *outcome.beside) if row.name in (DATA_PARALLEL, SPLIT)]
    times_s = [row.seconds(gained.clock) for row in rows if row is not outcome.row_written]
    least_s = gained.plan_s if gained.rival is None else gained.rival_s
    is_shorter = any(s is not None and -excess(s, least_s) > SAME for s in times_s)
    splits = " or split the batch" if is_shorter else ""
    if gained.rival is None:
        return f"No gain: use one device{splits}. It takes {takes} {how}; no plan here takes less."
    rival_takes, rival = milliseconds(gained.rival_s), _RIVALS[gained.rival.is_as_it_is]
    if gained.is_clear:
        text = f"{capital(title)} takes {takes} {how}, {less} than {rival} ({rival_takes})."
        return f"Use one device. {text}" if row.is_single else text
    doubt = "not worth a plan" if gained.clock is Clock.SIMULATED else "within the noise"
    doubt = f", which is {doubt}" if gained.saved > 0 and round(gained.saved, 3) else ""
    leave = "leave the program as it is" if gained.rival.is_as_it_is else f"use one device{splits}"
    return f"No gain: {leave} ({rival_takes} {how}). The plan written ({title}) takes {takes}: {less}{doubt}."


def _other_plans(outcome: Outcome) -> list[str]:
    """Sentences where a live search decided, where another row is faster, and where another method was asked for."""
    sentences, written, row = list[str](), outcome.written, outcome.row_written
    if Note.DECIDED in outcome.notes:
        why, comparison = outcome.notes.get(Note.WHY, ""), outcome.notes.get(Note.BESIDE_UNPLACED)
        sentences.append(f"Recommended: {outcome.recommended.title}. Among plans: {why}.")
        if comparison:
            sentences.append(f"The plan is {comparison}.")
    if written.search is not None and written.search.least_memory is not None:
        return sentences
    is_split = written is outcome.best_split and outcome.form.parts > 1
    if is_split:
        whole, clock = outcome.best_whole, written.clock
        text = f"The plan written puts the batch in {outcome.form.parts} parts"
        whole_s = None if whole is None or clock is None else whole.seconds(clock)
        written_s = None if clock is None else written.seconds(clock)
        if whole_s is not None and written_s is not None:
            less = gain(-excess(written_s, whole_s))
            text += f": {less} than the best plan of the whole batch (--parts=1 keeps it whole)"
        sentences.append(f"{text}.")
    best, own_row = outcome.rows[0], outcome.named(outcome.method)
    rival = None if outcome.gain is None else outcome.gain.rival
    # A difference below the digits that the table shows would contradict it.
    if best not in (row, rival) and best.clock is row.clock and _time_of(best) != _time_of(row):
        sentences.append(f"{capital(outcome.title_of(best))} takes less still, {_time_of(best)}.")
    if own_row not in (None, written) and outcome.by_layer is None and not is_split:
        how = "--write=method writes its plan"
        sentences.append(
            f"The method asked for, {own_row.name}, takes {_time_of(own_row)} ({how})."
            if own_row.clock is not None
            else f"The method asked for, {own_row.name}, did not run: {own_row.status.name}."
        )
    return sentences


def _time_of(row: Timed) -> str:
    clock = row.clock
    return "-" if clock is None else f"{milliseconds(row.seconds(clock))} {_HOW[clock]}"


def doubts(outcome: Outcome) -> list[str]:
    """Sentences on rows below the bound of their form, a fault of costs or simulator, and on a busy machine."""
    sentences = []
    for row in outcome.candidates:
        form, clock = outcome.form_of(row), row.clock
        if form is None or clock is None or row.is_fused:
            continue
        seconds, bound_s = row.seconds(clock) or 0.0, form.lower_bound_s
        if row.is_below_bound or excess(seconds, bound_s) < -SAME:
            because = (
                "the simulator contradicts its own bound, which is a fault of tf_placer: please report it"
                if row.is_below_bound
                else f"costs are taken for at least {percentage(excess(bound_s, seconds))} too high"
            )
            sentences.append(
                f"A finding: {outcome.title_of(row)} takes {_time_of(row)}, less than the lower bound of "
                f"{milliseconds(bound_s)}: {because}."
            )
    if outcome.busy_share:
        sentences.append(
            f"The machine was busy: other processes took {percentage(outcome.busy_share)} of its CPUs while plans "
            "were timed. Time them again when it is idle."
        )
    return sentences


def schedule_sentences(outcome: Outcome) -> list[str]:
    """Sentences on the order of execution of the plan written and on clusters, decided or asked for in vain."""
    texts = dict[str, str]()
    for part, step_s in outcome.schedule.items():
        without_s = step_s["without_s"]
        takes = "not fit in memory" if without_s is None else f"take {milliseconds(without_s)}"
        subject = "The plan also orders ops by control edges"
        if part != "order":
            subject = savings(outcome.placement.problem, outcome.placement.cluster_of_op).sentence()
        with_them = f"{milliseconds(step_s['with_s'])} in the simulator"
        texts[part] = f"{subject}: {with_them}; without them the step would {takes}."
    if fused := outcome.notes.get(Note.FUSED):
        texts["fused"] = fused
    return list(texts.values())


def remarks(outcome: Outcome) -> list[str]:
    """Sentences on an interrupted search, guessed costs and sizes, and how far simulated GPUs are from real ones."""
    problem = outcome.problem
    is_cut = outcome.search.interrupted
    sentences = ["The search was interrupted; this is the best plan so far."] if is_cut else []
    if measured_on := outcome.notes.get(Note.MEASURED_ON):
        sentences.append(measured_on)
    if problem.guessed_op_types:
        guesses = ", ".join(f"{op} x {count}" for op, count in problem.guessed_op_types.items())
        sentences.append(f"The cost of these ops is a guess: {guesses}.")
    if problem.estimated_sizes:
        rules = "; ".join(f"{count} {rule}" for rule, count in problem.estimated_sizes.items())
        count = sum(problem.estimated_sizes.values())
        sentences.append(f"The sizes of {count} tensors depend on data and are estimates: {rules}.")
    return [
        *sentences,
        *([] if outcome.placement.cluster_of_op is None else [_BOUNDS]),
        *about_parts(outcome),
        *fidelity_sentences(problem.cluster),
    ]


def about_parts(outcome: Outcome) -> list[str]:
    """Sentences on what is done again, what of a plan in parts is of each part, and what is not in parts."""
    sentences = [outcome.form.why_recomputed] if outcome.form.why_recomputed else []
    splitting = outcome.problem.splitting
    if splitting is not None and splitting.batch_statistics == "part":
        sentences.append(
            "Batch statistics are those of each part, as under tf.distribute: the step computes other numbers "
            '("whole" batch statistics keep them).'
        )
    if stayed := "; ".join(outcome.form.stayed_whole):
        sentences.append(f"Not everything that works on examples is split: {stayed}.")
    return sentences


def plan_sentences(outcome: Outcome) -> list[str]:
    """Sentences on a function's plan: doubts, what it does with the batch or would in parts, its order, its bounds."""
    splitting = outcome.placement.problem.splitting
    if splitting is not None and splitting.parts > 1:
        batch = f"The plan is of {splitting}: calls of another batch run as they are."
        parts = [batch, *about_parts(outcome)]
    else:
        parts = [*about_parts(outcome), *split_batch_sentences(outcome)]
    bounds = [] if outcome.placement.cluster_of_op is None else [_BOUNDS]
    return [*doubts(outcome), *parts, *schedule_sentences(outcome), *bounds]


def capital(text: str) -> str:
    """The text with its first letter large."""
    return f"{text[:1].upper()}{text[1:]}"


def fit_sentences(outcome: Outcome) -> list[str]:
    """Sentences for a step that no single accelerator holds: what it needs, what holds most, how the plan fits."""
    if outcome.room is None:
        return []
    name, peak_bytes, has_bytes = _fullest(outcome.search)
    # Of the program that is written: the whole may take less.
    in_parts = f" with its batch in {outcome.form.parts} parts" if outcome.form.parts > 1 else ""
    return [
        f"No single device holds the step{in_parts}: {outcome.room}.",
        f"The plan of {outcome.written.name} fits: {short_device_name(name)}, its fullest device, takes "
        f"{size(peak_bytes)} of {size(has_bytes)}, {percentage(1 - peak_bytes / has_bytes)} of it free.",
    ]


def least_memory_sentence(search: SearchResult) -> str:
    """Sentence on a search for the least memory: both plans' peaks, the cost of the smaller one, a lower bound."""
    least = search.least_memory
    assert least is not None, "the search was for it"
    name, peak_bytes, has_bytes = _fullest(search)
    _, fastest_bytes, fastest_has_bytes = _fullest(least.fastest)
    of_size = "" if fastest_has_bytes == has_bytes else f" of {size(fastest_has_bytes)}"
    slower = gain(-excess(search.runtime_s, least.fastest.runtime_s))
    bound = (
        f"; no plan that fast is below {percentage(least.bound_share)} of its fullest device"
        if round(least.bound_share, 3)
        else ""
    )
    return (
        f"Smallest peak {size(peak_bytes)} of {size(has_bytes)} on {short_device_name(name)} (fastest plan: "
        f"{size(fastest_bytes)}{of_size}), {slower}, where {percentage(least.slow_down)} is allowed; both are simulated"
        f"{bound}."
    )


def _fullest(search: SearchResult) -> tuple[str, int, int]:
    """The accelerator that takes the largest share of its memory: name, peak and memory in bytes."""
    cluster = search.placement.problem.cluster
    devices = itertools.compress(cluster.devices, cluster.accelerators())
    fullest = max(devices, key=lambda device: search.peak_bytes[device.name] / device.memory_bytes)
    return fullest.name, search.peak_bytes[fullest.name], fullest.memory_bytes


def _layer_sentences(outcome: Outcome) -> list[str]:
    """Sentences on how much slower a plan of whole layers is; none unless asked for."""
    by_layer, plan = outcome.by_layer, outcome.written.placement
    if by_layer is None:
        return []
    if outcome.written.name == GIVEN:
        return ["The plan given is written by layer, and lists the ops that are not where their layer is."]
    whole = by_layer.whole
    if whole is None:
        return [
            "No plan of whole layers that fits in memory was found: the plan written is of single ops, by layer, and "
            "lists those that are not where their layer is."
        ]
    slower = round(excess(whole.runtime_s, whole.op_level_s), 3)
    share = f"{percentage(abs(slower))} {'more' if slower > 0 else 'less'}" if slower else "no more"
    start = "With" if outcome.written.clock is Clock.SIMULATED else "In the simulator, with"
    sentences = [
        f"{start} whole layers ({by_layer.num_layers} of them) the step takes {milliseconds(whole.runtime_s)}, "
        f"{share} than with a place for every op. The plan written is that of whole layers (--by=op writes the other)."
    ]
    lost = [] if plan is None or plan.priority_of_op is None else ["order"]
    lost += [] if plan is None or plan.cluster_of_op is None else ["clusters"]
    if lost:
        decisions = " and the ".join(lost)
        sentences.append(f"Whole layers are another plan, without the {decisions} of that of single ops.")
    return sentences


def plan_in_parts_sentences(placement: Placement) -> list[str]:
    """One sentence on where a plan has its parts and its layers; none where the batch is whole or one device has all.

    A copy is in the layer of the op that it was made of. A layer is where most of each part's time is. Where ops were
    kept whole, what is no copy is of all parts.
    """
    problem = placement.problem
    splitting = problem.splitting
    if splitting is None or splitting.parts == 1 or len(np.unique(placement.device_of_op)) < 2:
        return []
    layers, part_of_op = layers_of_parts(problem), problem.part_of_op()
    is_shared = (part_of_op == SHARED) & bool(splitting.kept_whole)
    time_ns = np.zeros((len(layers), splitting.parts, problem.num_devices), np.int64)
    for part in range(splitting.parts):
        ops = np.flatnonzero((part_of_op == part) | is_shared)
        on = placement.device_of_op[ops]
        np.add.at(time_ns[:, part], (layers.layer_of_op[ops], on), problem.compute_ns[ops, on])
    of_layer = time_ns.sum(axis=(1, 2))
    shown_layers = np.flatnonzero(of_layer > _LEAST * of_layer.sum())
    places = [tuple(sorted(set(time_ns[layer].argmax(axis=1).tolist()))) for layer in shown_layers]
    labels = [layers.names[layer].rpartition("/")[2] for layer in shown_layers]
    on_place = {}
    for place in places:
        *names, last_name = (problem.cluster.labels[d] for d in place)
        on_place[place] = f"split over {', '.join(names)} and {last_name}" if names else f"on {last_name}"
    # Layers in the order of the program, those at one place together; their numbers where there are many changes.
    placed = zip(places, labels, strict=True)
    phrases, start = list[str](), ""
    for place, run in itertools.groupby(placed, key=lambda pair: pair[0]):
        names = [name for _, name in run]
        end = f" to {names[-1]} ({len(names)} layers)" if len(names) > 1 else ""
        phrases.append(f"{names[0]}{end} {on_place[place]}")
    if len(phrases) > _MOST_RUNS:
        counts, start = Counter(places).most_common(), f"of {len(labels)} layers "
        rest = sum(count for _, count in counts[_MOST_RUNS:])
        phrases = [f"{count} {on_place[place]}" for place, count in counts[:_MOST_RUNS]]
        phrases += [f"{rest} elsewhere"] if rest else []
    return [f"The plan: the batch in {splitting.parts} parts; {start}{', '.join(phrases)}."]


def split_batch_sentences(outcome: Outcome) -> list[str]:
    """Sentences on plans with the batch in parts that are not written, or on why there is none."""
    why_not = outcome.notes.get(Note.WHY_NOT_SPLIT)
    sentences = [why_not] if why_not else []
    split, written = outcome.best_split, outcome.written
    if split is not None:
        clock = clock_of([written])
        split_s, written_s = split.seconds(clock), written.seconds(clock)
        if written is not split and split_s is not None and written_s is not None:
            sentences.append(
                f"With the batch in parts the best plan found takes {milliseconds(split_s)} {_HOW[clock]}: "
                f"{gain(-excess(split_s, written_s))} than the plan written."
            )
        return sentences
    parallel = [row for row in outcome.beside if row.name == DATA_PARALLEL and not row.is_candidate]
    for row in parallel[-1:]:  # which was not asked for
        devices = [outcome.problem.cluster.devices[d].name for d in outcome.form.replicas]
        cpus = "CPUs" if "/job:localhost" in devices[0] else "CPU workers"
        over = f"{len(devices)} {'GPUs' if 'device:GPU' in devices[0] else cpus}"
        if row.simulated_s is None:
            return [*sentences, f"Data parallel over {over} does not fit: {row.message}."]
        compared, plan_s = "", written.simulated_s
        if plan_s is not None:
            share = excess(row.simulated_s, plan_s)
            if abs(share) <= SAME:
                compared = ", as this plan does"
            elif math.isinf(share):
                compared = ", and this plan no time"
            else:
                compared = f", {percentage(abs(share))} {'more' if share > 0 else 'less'} than this plan"
                compared += "" if share > 0 else f": parts={len(devices)} searches plans with a part for each"
        took = f"would take {milliseconds(row.simulated_s)} in the simulator"
        sentences.append(f"Data parallel over {over} {took}{compared}.")
    return sentences


def use_of_plan(outcome: Outcome, is_used: bool | None) -> str:
    """One clause that follows "the function is": placed, kept as it was, or not decided yet, with both times.

    ``is_used``: calls run by the plan; None where the user's first calls are still to decide.
    """
    if is_used is None:
        return f"on trial, the first calls decide: the plan takes {_last_times(outcome)}"
    return f"{'placed:' if is_used else 'kept as it was: the plan takes'} {_last_times(outcome)}"


def why_not(outcome: Outcome) -> str:
    """Reason why a plan was found and is not used."""
    reason = outcome.notes.get(Note.BESIDE_UNPLACED, "") or "not clearly faster than the unplaced function"
    return f"a plan was found and is {reason} ({_last_times(outcome)})"


def _last_times(outcome: Outcome) -> str:
    """The plan's and its rival's time by the plan's last clock, and the share saved."""
    gained = outcome.gain
    if gained is None:
        return "a time that is not known"
    takes, where = f"{milliseconds(gained.plan_s)} a step", f", {_HOW[gained.clock]}"
    if gained.rival is None:
        label = "no single device can run it" if outcome.single_s(gained.clock) is None else "on one device"
        return f"{takes}, {label}{where}"
    subject = "the function takes as it is" if gained.rival.is_as_it_is else "the best single device takes"
    return f"{takes}, {milliseconds(gained.rival_s)} {subject}: {gain(gained.saved)}{where}"


def fidelity_sentence(model: str) -> str:
    """Distance of simulated steps of networks on one GPU of a device model from measurements."""
    # Model of a device -> ``rows`` of networks measured on it, ``own`` by us, and the typical ``factor``.
    figures_of = json.loads(FIGURES.read_text(encoding="utf8"))
    figures = figures_of.get(model)
    share = percentage((figures or figures_of[ALL])["factor"] - 1)
    if figures is None:
        return (
            f"No published step times of networks on {model} were found; simulated times of other GPUs are typically "
            f"within {share} of published ones ({_PAGE})."
        )
    ours = f", {figures['own']:.0f} measured by us" if figures["own"] else ""
    kind, count = "measured" if ours else "published", f"{figures['rows']:.0f} steps{ours}"
    return f"Simulated times on {model} are typically within {share} of {kind} ones ({count}; {_PAGE})."


def fidelity_sentences(cluster: Cluster) -> list[str]:
    """One for each GPU model of a cluster that is only described; none for live devices."""
    gpus = (device.model for device in cluster.devices if device.type == "GPU")
    return [fidelity_sentence(model) for model in dict.fromkeys(gpus) if cluster.kind == "described"]
