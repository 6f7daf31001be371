"""summary.json: what a run found, for programs."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_placer.command_line.reporting.by_layer import layer_summary
from tf_placer.command_line.reporting.fit_verdict import fit_summary
from tf_placer.command_line.reporting.report import Report, is_single
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planning.live import LiveResult
from tf_placer.problem.decisions import Decisions


def summary(report: Report) -> dict[str, Any]:
    """The content of summary.json: seconds are floats, what was not measured is None."""
    beside = list(report.baselines)
    if is_single(report.chosen.method) and not is_single(report.method):
        beside.append(report.chosen)
    return {
        "workload": report.problem.name,
        "cluster": report.problem.cluster.name,
        "method": report.method,
        "written": report.chosen.method,
        "found_by": {c.method: c.result.found_by for c in report.candidates if c.result},
        "seed": report.result.seed,
        "settings": {c.method: c.result.settings for c in report.candidates if c.result},
        "ops": report.problem.num_ops,
        "units": report.problem.num_units,
        "runtime_s": report.result.runtime_s,
        "measured_s": report.chosen.measured_s,
        "lower_bound_s": report.tightest.lower_bound_s,
        "lower_bounds": {f"{name}_s": bound_s for name, bound_s in report.bounds},
        "tightest_bound": report.tightest.tightest_bound,
        "proven_optimal": [c.method for c in report.candidates if report.is_optimal(c)],
        "single_device_s": report.result.single_device_s,
        "baselines": {c.method: c.simulated_s for c in beside},
        "baselines_measured": {c.method: c.measured_s for c in beside},
        "baselines_evaluations": {c.method: c.result.evaluations for c in beside if c.result},
        "peak_bytes": report.result.peak_bytes,
        "status": report.chosen.status.name,
        "evaluations": report.result.evaluations,
        "search_s": report.result.search_s,
        "interrupted": report.result.interrupted,
        "recommended": report.recommended.method,
        "whole_layers_s": report.whole_layers.runtime_s if report.whole_layers else None,
        "data_parallel": dataclasses.asdict(report.data_parallel) if report.data_parallel else None,
        "guessed_op_types": report.problem.guessed_op_types,
        "estimated_sizes": report.problem.estimated_sizes,
        **(layer_summary(report.by_layer) if report.by_layer else {}),
        **fit_summary(report),
        **(_live_summary(report.live.found) if report.live else {}),
    }


def _live_summary(found: LiveResult) -> dict[str, Any]:
    plans = Decisions.joined([trial.decisions for trial in found.trials])
    simulated_s = SimulatedEvaluator(found.problem).evaluate(plans).runtime_s
    return {
        "why": found.why,
        "correction": dataclasses.asdict(found.correction),
        "trials": [
            {
                "method": trial.method,
                "simulated_s": float(simulated),
                "measured_s": trial.measured_s,
                "raced": trial.raced,
                "status": trial.status.name,
                "message": trial.message,
                "evaluations": trial.evaluations,
            }
            for trial, simulated in zip(found.trials, simulated_s, strict=True)
        ],
    }
