"""Page of a study that follows searches over their evaluations: Markdown, CSVs, a picture, and verdicts on agents."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.studies.cells import NOT_RUN, OK, Cell, Filled
from experiments.studies.formats import csv_text, figure, header, line, machine_lines, png
from experiments.studies.study import Candidate, Study
from tf_placer.base.files import write_atomically
from tf_placer.base.method_spec import Kind, Role
from tf_placer.search import methods

# Over the same groups, without a network: who is behind it has a network that hurts.
TABLE = "tabular"
# Sums in another order differ in their last digits, which is no difference.
_EQUAL = 1 - 1e-9
_HIGHEST = 1.5  # of the reference: what is above says nothing about the rest
_STYLES = ("-", "--", ":", "-.")
_OVER = {"evaluations": "evaluations", "elapsed_s": "seconds"}


def write(study: Study, rows: Sequence[Filled], out: pathlib.Path, command: str) -> None:
    """Writes the page, the CSVs and the picture of what is done."""
    write_atomically(out / f"{study.name}.md", as_markdown(study, rows, command))
    write_atomically(out / f"{study.name}.csv", searches_csv(study, rows))
    write_atomically(out / f"{study.name}_curves.csv", curves_csv(study, rows))
    write_atomically(out / f"{study.name}.png", draw(study, rows))


def as_markdown(study: Study, rows: Sequence[Filled], command: str) -> str:
    """A page: what was run, what each candidate found on each problem, and what can be said of the agents."""
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
        "A figure is the mean best step over all seeds, as a share of the step of the plan in the first line: 0.8",
        f"takes 20 % less time. In brackets, of what learns: the mean of its first {study.window} samples and of its",
        "last ones, or of an update where that has more. † ended by the cap of seconds. Each search is a line of",
        f"[the CSV]({study.name}.csv).",
    ]
    done = sum(len(filled.cells) == len(study.candidates_of(filled.row)) for filled in rows)
    if done < len(study.rows):
        lines += ["", f"Not complete: {done} of {len(study.rows)} problems are done."]
    lines += ["", *_steps(study, rows)]
    learned = [one for one in study.candidates if methods.find(one.method).kind == Kind.LEARNED]
    lines += _verdicts(study, rows, learned) if learned else []
    for filled in rows:
        lines += _not_learned(filled, [one for one in learned if one.name in filled.cells])
        if study.towards in filled.cells:
            there = [one for one in study.candidates if one.name in filled.cells]
            lines += ["", f"## {filled.row.name}", *_towards(study.towards, there, filled)]
        lines += _failed(filled)
    return "\n".join(lines) + "\n"


def _steps(study: Study, rows: Sequence[Filled]) -> list[str]:
    """A line for each candidate, with its step on each problem, below the question that it answers."""
    lines = header("", *(filled.row.name for filled in rows))
    lines.append(line("1 is", *(f"{filled.reference}, {filled.reference_s:.4g} s" for filled in rows)))
    lines.append(line("no plan is below", *(_fraction(one.bound_s / one.reference_s) for one in rows)))
    for asks, candidates in itertools.groupby(study.candidates, key=lambda one: one.asks):
        lines += [line(f"*{asks}*", *[""] * len(rows))] if asks else []
        lines += [line(one.name, *(_step(filled, one.name) for filled in rows)) for one in candidates]
    return lines


def _step(filled: Filled, name: str) -> str:
    cells = filled.cells.get(name, ())
    text = _fraction(_mean([cell.runtime_s / filled.reference_s for cell in cells])) if cells else ""
    if learned := [cell for cell in cells if cell.updates]:
        first = _mean([cell.first_mean_s / filled.reference_s for cell in learned])
        last = _mean([cell.last_mean_s / filled.reference_s for cell in learned])
        text += f" ({_fraction(first)}, {_fraction(last)})"
    return text + (" †" if any(cell.capped for cell in cells) else "")


def _towards(name: str, candidates: Sequence[Candidate], filled: Filled) -> list[str]:
    """Evaluations and seconds that each takes to the final step time of one candidate."""
    target_s = _mean([cell.runtime_s for cell in filled.cells[name]])
    title = f"to {_fraction(target_s / filled.reference_s)}, {name}'s mean"
    titles = (title, "seeds that get there", "placements", "seconds", f"{name}'s placements over its own")
    lines, whole = ["", *header(*titles)], None
    for one in sorted(candidates, key=lambda one: one.name != name):
        cells = filled.cells[one.name]
        reached = [point for cell in cells if (point := cell.reaches(target_s)) is not None]
        tried = _mean([point.evaluations for point in reached])
        whole = tried if one.name == name else whole
        told = [f"{tried:.0f}", f"{_mean([point.elapsed_s for point in reached]):.1f}"]
        share = f"{whole / tried:.1f}" if reached and whole else ""
        told = told if reached else ["-", "-"]
        lines.append(line(one.name, f"{len(reached)} of {len(cells)}", *told, share))
    return lines


def _verdicts(study: Study, rows: Sequence[Filled], learned: Sequence[Candidate]) -> list[str]:
    """Number of searches, on all problems, in which each statement is true of each agent."""
    others = [one for one in study.candidates if one not in learned or one.name == study.against]
    control = [one for one in others if Role.CONTROL in methods.find(one.method).roles]
    columns: list[tuple[str, Callable[[Cell, Cell], bool], Candidate]] = [
        (f"last samples ahead of {one.name}'s best", mean_is_ahead, one) for one in control
    ]
    columns += [(f"best ahead of {one.name}", best_is_ahead, one) for one in others]
    tables = [one for one in learned if one.name == one.method == TABLE]
    columns += [("not behind its table", is_not_behind, one) for one in tables]
    lines = ["", *header("searches in which", "it has learned", *(title for title, *_ in columns))]
    for agent in learned:
        cells = [filled.cells[agent.name] for filled in rows if agent.name in filled.cells]
        told = [f"{sum(has_learned(cell) for own in cells for cell in own)} of {sum(map(len, cells))}"]
        for _, verdict, other in columns:
            pairs = [
                count(verdict, filled.cells[agent.name], filled.cells[other.name])
                for filled in rows
                if {agent.name, other.name} <= filled.cells.keys()
            ]
            true, of = (sum(numbers) for numbers in zip(*pairs, strict=True)) if pairs else (0, 0)
            told.append("" if other is agent else f"{true} of {of}")
        lines.append(line(agent.name, *told))
    return lines


def _not_learned(filled: Filled, learned: Sequence[Candidate]) -> list[str]:
    """Names the agents that end no better than luck began."""
    named = []
    for one in learned:
        cells = [cell for cell in filled.cells[one.name] if cell.status != NOT_RUN]
        if failed := sum(not has_learned(cell) for cell in cells):
            named.append(f"{one.name} ({failed} of {len(cells)} seeds)")
    if not named:
        return []
    told = "the mean of the last samples is no faster than the best of the first ones."
    return ["", f"**Has not learned** on {filled.row.name}: {', '.join(named)}: {told}"]


def _failed(filled: Filled) -> list[str]:
    """Reasons for searches that were not run, or found nothing that fits."""
    lines = []
    for name, cells in filled.cells.items():
        failed = [cell for cell in cells if cell.message]
        if failed:
            lines += ["", f"{name}, {len(failed)} of {len(cells)} seeds: {failed[0].message}."]
    return lines


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _fraction(value: float) -> str:
    return figure(value, ".3f")


def searches_csv(study: Study, rows: Sequence[Filled]) -> str:
    """One line for each search."""
    fields = ["first_best_s", "first_mean_s", "last_mean_s", "updates", "evaluations", "search_s", "capped"]
    records = []
    for search, filled, cell in _searches(study, rows):
        times = {"reference_s": filled.reference_s, "bound_s": filled.bound_s}
        search |= {"status": cell.status, "best_s": cell.runtime_s, **times}
        records.append({**search, **{name: getattr(cell, name) for name in fields}})
    return csv_text(records)


def curves_csv(study: Study, rows: Sequence[Filled]) -> str:
    """One line for each point of each curve; the entropy is the last that was asked for before the point."""
    points = []
    for search, _, cell in _searches(study, rows):
        for point in cell.points:
            nats = [nats for evaluations, nats in cell.entropy if evaluations <= point.evaluations]
            entropy = nats[-1] if nats else math.nan
            points.append({**search, **dataclasses.asdict(point), "entropy": entropy})
    return csv_text(points) if points else ""


def _searches(study: Study, rows: Sequence[Filled]) -> Iterator[tuple[dict[str, Any], Filled, Cell]]:
    candidates = {one.name: one for one in study.candidates}
    for filled in rows:
        problem = {"workload": filled.row.workload, "cluster": filled.row.cluster}
        for name, cells in filled.cells.items():
            for seed, cell in zip(candidates[name].seeds_of(study.seeds), cells, strict=True):
                yield {**problem, "candidate": name, "seed": seed}, filled, cell


def draw(study: Study, rows: Sequence[Filled]) -> bytes:
    """A PNG. The same rows give the same bytes."""
    figure = Figure(figsize=(16, 3.4 * len(rows) + 0.4), layout="constrained")
    grid: Any = figure.subplots(len(rows), 4, squeeze=False)
    numbers = {one.name: number for number, one in enumerate(study.candidates)}
    control = {one.name for one in study.candidates if Role.CONTROL in methods.find(one.method).roles}
    for axes, filled in zip(grid, rows, strict=True):
        for name, cells in filled.cells.items():
            style = {"color": f"C{numbers[name] % 10}", "linestyle": _STYLES[numbers[name] // 10 % 4]}
            some = [cell for cell in cells if cell.curve]
            # What learns nothing has no samples of a policy; beside those stands the best of the control.
            of_samples = "mean_s" if any(cell.updates for cell in cells) else "best_s"
            for axis, (y, x) in zip(axes, itertools.product(("best_s", of_samples), _OVER), strict=True):
                if y == "best_s" and axis in axes[2:] and name not in control:
                    continue
                _draw_line(axis, some, x, y, filled.reference_s, name, style)
        _frame(axes, filled)
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", fontsize=8)
    return png(figure, dpi=100)


def _draw_line(
    axis: Axes, cells: Sequence[Cell], x: str, y: str, reference_s: float, name: str, style: dict[str, Any]
) -> None:
    """The mean over seeds as a line, point by point, and from the least to the most as a band."""
    if not cells:
        return
    length = min(len(cell.curve) for cell in cells)
    points = [cell.points[:length] for cell in cells]
    at = np.mean([[getattr(point, x) for point in some] for some in points], axis=0)
    values = np.array([[getattr(point, y) / reference_s for point in some] for some in points])
    known = ~np.isnan(values).any(axis=0)
    if not known.any():
        return
    at, values = at[known], values[:, known]
    if len(at) == 1:
        axis.axhline(float(values.mean()), label=name, linewidth=1, **style)
        return
    axis.plot(at, values.mean(axis=0), label=name, linewidth=1.3, **style)
    band = values.min(axis=0), values.max(axis=0)
    axis.fill_between(at, *band, color=style["color"], alpha=0.15, linewidth=0)


def _frame(axes: Sequence[Axes], filled: Filled) -> None:
    bound = filled.bound_s / filled.reference_s
    titles = (f"{filled.row.name}: best", "best", "mean of samples", "mean of samples")
    for number, (axis, title) in enumerate(zip(axes, titles, strict=True)):
        axis.axhline(1, color="black", linestyle=":", linewidth=0.8)
        axis.axhline(bound, color="black", linestyle="--", linewidth=0.8)
        top = max(float(np.max(line.get_ydata())) for line in axis.get_lines())
        axis.set_ylim(0.95 * bound, min(_HIGHEST, 1.02 * top))
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(_OVER[tuple(_OVER)[number % 2]], fontsize=8)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel(f"step time / {filled.reference}", fontsize=8)


def has_learned(cell: Cell) -> bool:
    """The mean of its last samples is faster than the best of its first ones: what it finds, luck did not find."""
    return _less(cell.last_mean_s, cell.first_best_s)


def mean_is_ahead(cell: Cell, other: Cell) -> bool:
    """The mean of its last samples is faster than the other's best after as many evaluations."""
    return _less(cell.last_mean_s, other.best_at(cell.evaluations))


def best_is_ahead(cell: Cell, other: Cell) -> bool:
    """Its best is faster than the other's after as many evaluations."""
    return _less(cell.runtime_s, other.best_at(cell.evaluations))


def is_not_behind(cell: Cell, other: Cell) -> bool:
    """The other's best after as many evaluations is not faster than its own."""
    return cell.status == OK and not _less(other.best_at(cell.evaluations), cell.runtime_s)


def count(
    verdict: Callable[[Cell, Cell], bool], cells: Sequence[Cell], others: Sequence[Cell]
) -> tuple[int, int]:
    """Number of seeds in which it is true, and of all; a method that draws nothing has one cell for all seeds."""
    paired = [(cell, others[min(i, len(others) - 1)]) for i, cell in enumerate(cells)] if others else []
    return sum(verdict(*pair) for pair in paired), len(paired)


def _less(one: float, other: float) -> bool:
    """Clearly so, and both are known; anything is faster than what did not fit."""
    return not math.isnan(one) and one < other * _EQUAL
