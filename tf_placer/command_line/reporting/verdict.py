"""The verdict: what is gained over a single device, in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_placer import quantities
from tf_placer.command_line.reporting.by_layer import about_layers, whole_layers_sentence
from tf_placer.command_line.reporting.candidate import Candidate
from tf_placer.command_line.reporting.fit_verdict import fit_sentences, least_memory_sentence
from tf_placer.command_line.reporting.report import Live, Report, is_single, row_name
from tf_placer.command_line.reporting.split_batch import split_batch_verdict
from tf_placer.quantities import excess, milliseconds, percentage


def verdict(report: Report) -> str:
    """What is gained over a single device, or that nothing is; what memory, layers and the batch have to do with it."""
    said = [_gained(report), *fit_sentences(report)]
    if report.by_layer is not None:
        said.append(about_layers(report, report.by_layer))
    said += whole_layers_sentence(report)
    said += split_batch_verdict(report)
    return "\n".join(said)


def _gained(report: Report) -> str:
    if report.result.least_memory is not None:
        return least_memory_sentence(report.result)
    if report.live is not None:
        return _live_verdict(report.live, (report.chosen, *report.baselines))
    single = report.single
    how = "in the simulator" if report.chosen.measured_s is None else "on the runtime"
    if report.chosen.step_s is None:
        return f"{report.chosen.method} did not run: {report.chosen.status.name}."
    if is_single(report.method):
        return (
            f"The best single device takes {milliseconds(report.chosen.step_s)} {how}; nothing here beats it."
        )
    asked = next((c for c in report.candidates if c.method == report.method), report.chosen)
    return " ".join([_standing(asked, single, how), *_about_the_plan_written(report, single)])


def _about_the_plan_written(report: Report, single: Candidate | None) -> list[str]:
    """Sentences that are needed where another method's plan is written, or would be the better one."""
    single_is_fastest = report.recommended is single
    advice = ["Leave the program on one device."] if single_is_fastest else []
    if report.chosen.method != report.method:
        if single_is_fastest:
            return [
                *advice,
                f"The plan written is that of the single device, {milliseconds(report.chosen.step_s)}.",
            ]
        return [
            f"{report.chosen.method} is the fastest, {milliseconds(report.chosen.step_s)}: the plan written is its "
            f"(--write=method writes that of {report.method})."
        ]
    if report.recommended is report.chosen:
        return []
    if not single_is_fastest:
        advice = [f"{report.recommended.method} is faster still, {milliseconds(report.recommended.step_s)}."]
    return [*advice, f"The plan written is that of {report.chosen.method}."]


def _standing(candidate: Candidate, single: Candidate | None, how: str) -> str:
    """One sentence about a candidate beside the single device."""
    if candidate.step_s is None:
        return f"{candidate.method} did not run: {candidate.status.name}."
    if single is None or single.step_s is None:
        return f"No single device was timed; {candidate.method} takes {milliseconds(candidate.step_s)} {how}."
    gain = round(-excess(candidate.step_s, single.step_s), 3)
    if gain > 0:
        return f"{candidate.method} is {percentage(gain)} faster than a single device {how}."
    slower = f" ({percentage(-gain)} slower)" if gain and math.isfinite(gain) else ""
    return f"{candidate.method} is NOT faster than a single device {how}{slower}."


def _live_verdict(live: Live, candidates: Sequence[Candidate]) -> str:
    found = live.found
    single = next((c for c in candidates if is_single(c.method)), None)
    lines = [f"Recommended: {row_name(live.recommended)}. {found.why[0].upper()}{found.why[1:]}."]
    if candidates[0] is not live.recommended:
        lines.append(f"The plan written is that of {row_name(candidates[0])}, as --write=method asks.")
    if single is None or single.measured_s is None:
        return "\n".join(lines)
    for candidate in candidates:
        if is_single(candidate.method) or candidate.measured_s is None or candidate.simulated_s is None:
            continue
        measured = -excess(candidate.measured_s, single.measured_s)
        simulated = None
        if single.simulated_s is not None:
            simulated = -excess(candidate.simulated_s, single.simulated_s)
        lines.append(
            f"{candidate.method}: {quantities.gain(measured)} than the best single device on the runtime, "
            f"{quantities.gain(simulated)} in the simulator fitted to what was measured."
        )
    return "\n".join(lines)
