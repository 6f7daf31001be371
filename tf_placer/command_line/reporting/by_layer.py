"""The plan in whole layers: what it costs beside one of single ops, and, with `--by=layer`, a table of layers."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import numpy as np
import rich.table

from tf_placer.command_line.reporting.candidate import GIVEN
from tf_placer.command_line.reporting.report import ByLayer, Report, is_single
from tf_placer.planners.whole_layers import MOMENT, whole_layers
from tf_placer.problem.layer_lines import with_units_whole
from tf_placer.problem.layer_rows import device_labels, layer_rows
from tf_placer.problem.layers import layers_of
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.quantities import in_unit, milliseconds, percentage


def in_layers(report: Report, seed: int) -> Report:
    """The report with a plan of whole layers, made of the one that would be written; a plan that was given stays it."""
    problem = _problem(report)
    layers = with_units_whole(problem, layers_of(problem))
    given = report.result.placement
    whole = None
    if report.chosen.method != GIVEN:
        whole = whole_layers(problem, layers, given.decisions, seed)
    placement = given if whole is None else Placement(given.problem, whole.device_of_unit)
    return dataclasses.replace(report, by_layer=ByLayer(layers, whole, placement))


def beside_layers(report: Report, seed: int) -> Report:
    """The report with the step time of whole layers beside a plan of single ops, found in a moment.

    There is none where the program has no layers, the plan was given, has one device or the least memory, and after
    Ctrl-C.
    """
    chosen, result = report.chosen, report.result
    if (
        chosen.method == GIVEN
        or is_single(chosen.method)
        or result.least_memory is not None
        or result.interrupted
    ):
        return report
    with contextlib.suppress(KeyboardInterrupt):  # the plan is there, and counts more
        problem = _problem(report)
        layers = with_units_whole(problem, layers_of(problem))
        if len(np.unique(layers.layer_of_op)) < 2:
            return report
        whole = whole_layers(problem, layers, result.placement.decisions, seed, MOMENT)
        return dataclasses.replace(report, whole_layers=whole)
    return report


def whole_layers_sentence(report: Report) -> list[str]:
    """By how much a plan of whole layers would be slower at most, none where that is not known."""
    whole = report.whole_layers
    if whole is None:
        return []
    start = "A" if report.chosen.measured_s is None else "In the simulator, a"
    slower = round(whole.slower, 3)
    if slower <= 0:
        return [f"{start} plan of whole layers takes no more than that of single ops (--by=layer writes it)."]
    return [
        f"{start} plan of whole layers (--by=layer) takes {milliseconds(whole.runtime_s)} or less, at most "
        f"{percentage(slower)} more than that of single ops."
    ]


def _problem(report: Report) -> Problem:
    """The simulator that says what layers cost: where the runtime was asked, the one that was fitted to it."""
    return report.problem if report.live is None else report.live.found.problem


def about_layers(report: Report, by_layer: ByLayer) -> str:
    """By how much whole layers are slower, in a sentence."""
    if report.chosen.method == GIVEN:
        return (
            "The plan was given: it is written by layer, and lists the ops that are not where their layer is."
        )
    whole = by_layer.whole
    if whole is None:
        return (
            "No plan of whole layers that fits in memory was found: the plan written is that of single ops, by layer, "
            "and lists those that are not where their layer is."
        )
    count = _count(by_layer)
    slower = round(whole.slower, 3)
    share = f"{percentage(abs(slower))} {'more' if slower > 0 else 'less'}" if slower else "no more"
    start = "With" if report.chosen.measured_s is None else "In the simulator, with"
    return (
        f"{start} whole layers ({count} of them) the step takes {milliseconds(whole.runtime_s)}, {share} than with "
        "a place for every op. The plan written is that of whole layers (--by=op writes the other)."
    )


def layer_table(by_layer: ByLayer) -> rich.table.Table:
    """A row for each layer that there is room for, the one that takes longest opened first."""
    problem = by_layer.placement.problem
    labels = device_labels(problem.cluster)
    table = rich.table.Table(title="layers of the plan written")
    table.add_column("layer", overflow="fold")
    table.add_column("on", overflow="fold")
    for column in ("ops", "work", "variables", "outputs"):
        table.add_column(column, justify="right")
    for row in layer_rows(problem, by_layer.layers, by_layer.placement.device_of_unit):
        table.add_row(
            row.name,
            row.on(labels),
            str(row.num_ops),
            milliseconds(row.compute_ns.sum() / 1e9),
            in_unit(row.resident_bytes, "MB"),
            in_unit(row.output_bytes, "MB"),
        )
    return table


def layer_summary(by_layer: ByLayer) -> dict[str, Any]:
    """What summary.json says of layers: how many have ops, and what a plan of whole ones takes, if there is one."""
    whole = by_layer.whole
    devices = [device.name for device in by_layer.placement.problem.cluster.devices]
    return {
        "layers": _count(by_layer),
        "by_layer_s": None if whole is None else whole.runtime_s,
        "by_layer_peak_bytes": None
        if whole is None
        else dict(zip(devices, whole.peak_bytes.tolist(), strict=True)),
    }


def _count(by_layer: ByLayer) -> int:
    """How many layers have ops of their own, beside those of layers inside them."""
    return len(np.unique(by_layer.layers.layer_of_op))
