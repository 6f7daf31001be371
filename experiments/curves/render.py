"""A study as Markdown for people."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from experiments.curves import verdicts
from experiments.curves.cells import Filled, SearchCell
from experiments.curves.machine import machine_lines
from experiments.curves.study import Candidate, Study
from experiments.papers.cells import NOT_RUN
from tf_placer.search import methods
from tf_placer.search.spec import Kind, Role

# Over the same groups, without a network: who is behind it has a network that hurts.
TABLE = "tabular"


def as_markdown(study: Study, rows: Sequence[Filled], command: str) -> str:
    """A page: what was run; for each problem what was found, and what can be said of the agents.

    Args:
      study: what is compared.
      rows: the problems that are begun.
      command: what makes the page again.
    """
    lines = [
        f"# {study.title}",
        "",
        f"- Command: `{command}`",
        f"- Seed: {', '.join(map(str, study.seeds))}",
        *machine_lines(),
        f"- Budget: {study.evaluations} placements for each search, and at most {study.cap_s:g} s",
        "",
        study.about,
        "",
        f"![Best and mean of samples over evaluations and over seconds]({study.name}.png)",
        "",
        "Figures are fractions of the step of the plan that is named above each table: 0.8 takes 20 % less time.",
        "*Samples* are what an agent draws from its policy, and its best is the best of them; its first and last ones",
        f"are {study.window}, or an update's where that has more. *Entropy* is the policy's, the mean of a decision in",
        "nats, early and at the end, where the learner says it. The CSV beside this page has each curve, with seconds.",
    ]
    done = sum(len(filled.cells) == len(_wanted(study, filled)) for filled in rows)
    if done < len(study.rows):
        lines += ["", f"Not complete: {done} of {len(study.rows)} problems are done."]
    for filled in rows:
        lines += ["", *_section(study, filled)]
    return "\n".join(lines) + "\n"


def _wanted(study: Study, filled: Filled) -> list[Candidate]:
    return [one for one in study.candidates if not one.only or filled.row.name in one.only]


def _section(study: Study, filled: Filled) -> list[str]:
    lines = [
        f"## {filled.row.name}",
        "",
        f"{filled.ops} ops in {filled.units} units. 1 is {filled.reference}: {filled.reference_s:.4g} s a step; no "
        f"placement is below {filled.bound_s / filled.reference_s:.3f}.",
    ]
    there = [one for one in _wanted(study, filled) if one.name in filled.cells]
    for asks, some in itertools.groupby(there, key=lambda one: one.asks):
        lines += ["", *([f"### {asks}", ""] if asks else []), *_found(filled, list(some), there[0])]
    learned = [one for one in there if methods.find(one.method).kind == Kind.LEARNED]
    others = [one for one in there if one not in learned or one.name == study.against]
    lines += _verdicts(filled, learned, others)
    lines += _not_learned(filled, learned)
    if study.towards in filled.cells:
        lines += _towards(study.towards, there, filled)
    return [*lines, *_failed(filled)]


def _towards(name: str, candidates: Sequence[Candidate], filled: Filled) -> list[str]:
    """How soon each is as fast as one is in the end."""
    target_s = _mean([cell.runtime_s for cell in filled.cells[name]])
    title = f"to {_fraction(target_s / filled.reference_s)}, {name}'s mean"
    lines = [
        "",
        *_header(title, "seeds that get there", "placements", "seconds", f"{name}'s placements over its own"),
    ]
    whole = None
    for one in sorted(candidates, key=lambda one: one.name != name):
        cells = filled.cells[one.name]
        reached = [point for cell in cells if (point := cell.reaches(target_s)) is not None]
        tried = _mean([point.evaluations for point in reached])
        whole = tried if one.name == name else whole
        told = [f"{tried:.0f}", f"{_mean([point.elapsed_s for point in reached]):.1f}"]
        share = f"{whole / tried:.1f}" if reached and whole else ""
        lines.append(
            _line(one.name, f"{len(reached)} of {len(cells)}", *(told if reached else ("-", "-")), share)
        )
    return lines


def _found(filled: Filled, candidates: Sequence[Candidate], first: Candidate) -> list[str]:
    """What each found; with a heading of their own, beside the first candidate of all."""
    if first not in candidates:
        candidates = [first, *candidates]
    lines = _header(
        "",
        "best, each seed",
        "mean",
        "samples, first",
        "samples, last",
        "updates",
        "entropy",
        "tried",
        "a second",
    )
    for one in candidates:
        cells = filled.cells[one.name]
        scaled = [cell.runtime_s / filled.reference_s for cell in cells]
        spent_s = sum(cell.search_s for cell in cells)
        tried = sum(cell.evaluations for cell in cells)
        lines.append(
            _line(
                one.name,
                " ".join(map(_fraction, scaled)),
                _fraction(_mean(scaled)),
                _fraction(_mean([cell.first_mean_s / filled.reference_s for cell in cells if cell.updates])),
                _fraction(_mean([cell.last_mean_s / filled.reference_s for cell in cells if cell.updates])),
                str(round(_mean([cell.updates for cell in cells]))) if any(c.updates for c in cells) else "",
                _entropy(cells),
                str(round(tried / len(cells))) + (" †" if any(cell.capped for cell in cells) else ""),
                f"{tried / spent_s:.0f}" if spent_s and tried > len(cells) else "",
            )
        )
    if any(cell.capped for one in candidates for cell in filled.cells[one.name]):
        lines += ["", "† ended by the cap of seconds: another run may differ."]
    return lines


def _verdicts(filled: Filled, learned: Sequence[Candidate], others: Sequence[Candidate]) -> list[str]:
    """In how many seeds each thing is true of each agent, beside others."""
    control = [one for one in others if Role.CONTROL in methods.find(one.method).roles]
    columns: list[tuple[str, Callable[[SearchCell, SearchCell], bool], Candidate]] = [
        (f"last samples ahead of {one.name}'s best", verdicts.mean_is_ahead, one) for one in control
    ]
    columns += [(f"best ahead of {one.name}", verdicts.best_is_ahead, one) for one in others]
    columns += [
        ("not behind its table", verdicts.is_not_behind, one)
        for one in learned
        if one.name == one.method == TABLE
    ]
    if not learned:
        return []
    lines = ["", *_header("seeds in which", "it has learned", *(title for title, *_ in columns))]
    for agent in learned:
        cells = filled.cells[agent.name]
        told = [f"{sum(map(verdicts.has_learned, cells))} of {len(cells)}"]
        for _, verdict, other in columns:
            true, of = verdicts.count(verdict, cells, filled.cells[other.name])
            told.append("" if other is agent else f"{true} of {of}")
        lines.append(_line(agent.name, *told))
    return lines


def _not_learned(filled: Filled, learned: Sequence[Candidate]) -> list[str]:
    """Names the agents that end no better than luck began."""
    named = []
    for one in learned:
        cells = [cell for cell in filled.cells[one.name] if cell.status != NOT_RUN]
        if failed := sum(not verdicts.has_learned(cell) for cell in cells):
            named.append(f"{one.name} ({failed} of {len(cells)} seeds)")
    if not named:
        return []
    told = "the mean of the last samples is no faster than the best of the first ones."
    return ["", f"**Has not learned:** {', '.join(named)}: {told}"]


def _failed(filled: Filled) -> list[str]:
    """Why something was not run, or found nothing that fits."""
    lines = []
    for name, cells in filled.cells.items():
        failed = [cell for cell in cells if cell.message]
        if failed:
            lines += ["", f"{name}, {len(failed)} of {len(cells)} seeds: {failed[0].message}."]
    return lines


def _entropy(cells: Sequence[SearchCell]) -> str:
    said = [cell.entropy for cell in cells if cell.entropy]
    if not said:
        return ""
    return f"{_mean([one[0][1] for one in said]):.2f} to {_mean([one[-1][1] for one in said]):.2f}"


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _fraction(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "OOM" if math.isinf(value) else f"{value:.3f}"


def _header(*names: str) -> list[str]:
    return [_line(*names), _line(*("---" for _ in names))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
