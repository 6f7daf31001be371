"""Cells of a study: one search each, kept on disk with its curve as soon as it is done, so a killed study resumes."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import inspect
import json
import math
import pathlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.studies.study import (
    DATA_PARALLEL,
    IN_PARTS,
    ONE_ACCELERATOR,
    VARIANTS,
    Candidate,
    Row,
    Study,
)
from tf_placer import workloads
from tf_placer.agents.features import weights_path
from tf_placer.agents.learner import PolicyLearner, Proposal
from tf_placer.base.arguments import InputError
from tf_placer.base.files import write_atomically
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import Status, search_simulator
from tf_placer.graph.item import Item
from tf_placer.planning.forms import Form, split_form
from tf_placer.planning.fusing import fastest_clusters
from tf_placer.planning.outcome import data_parallel_row
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.methods import NO_ORDER, configured
from tf_placer.search.recorder import HistoryEntry, SearchResult
from tf_placer.search.search import NothingFits, search
from tf_placer.transform.fusion import RULES
from tf_placer.transform.split.split_batch import split_program

OK, OUT_OF_MEMORY, NOT_RUN = Status.OK.name, Status.OUT_OF_MEMORY.name, "NOT_RUN"
POINTS = 100
# More than any method makes that is done when it has made its plans.
_CHEAP = 1000
# The entropy is asked for at a few updates only: at each that is so many times as late as the one before.
_LATER = 1.15


@dataclasses.dataclass(frozen=True)
class Point:
    """A search at one moment."""

    evaluations: int  # placements tried so far
    elapsed_s: float  # seconds since the start
    best_s: float  # fastest step so far, nan while nothing ran
    mean_s: float  # mean step of what was tried since the point before and ran, nan if nothing did


def curve_of(history: Sequence[HistoryEntry], points: int) -> list[Point]:
    """Curve of at most ``points`` points, evenly spaced in evaluations; the last is the end.

    A round's mean counts as often as it has placements that ran; where a round says only its best, it is that.
    """
    if not history:
        return []
    step = history[-1].evaluations / points
    curve: list[Point] = []
    sum_s, ran, before = 0.0, 0, 0
    for entry in history:
        rows = entry.evaluations - before - entry.failed
        if rows > 0 and not math.isnan(entry.mean_s):
            sum_s, ran = sum_s + rows * entry.mean_s, ran + rows
        before = entry.evaluations
        if entry is history[-1] or entry.evaluations >= step * (len(curve) + 1):
            mean_s = sum_s / ran if ran else math.nan
            curve.append(Point(entry.evaluations, entry.elapsed_s, entry.best_s, mean_s))
            sum_s, ran = 0.0, 0
    return curve


@dataclasses.dataclass
class Seen:
    """Samples of one learner. The start of a search, and so its own best so far, is not among them."""

    most: float = math.inf  # samples that count; what an update has beyond them does not
    history: list[HistoryEntry] = dataclasses.field(default_factory=list)  # an entry for each update
    ran_s: list[np.ndarray] = dataclasses.field(default_factory=list)  # steps of the samples of each that ran
    # Pairs of samples so far, and the policy's mean entropy of a decision in nats, if the learner tells.
    entropy: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    begin_s: float = dataclasses.field(default_factory=time.monotonic)  # on the monotonic clock

    @property
    def updates(self) -> int:
        """Updates so far."""
        return len(self.history)

    @property
    def samples(self) -> int:
        """Samples so far."""
        return self.history[-1].evaluations if self.history else 0

    @property
    def best_s(self) -> float:
        """The fastest step of all samples, nan where none ran."""
        return self.history[-1].best_s if self.history else math.nan

    def add(self, runtime_s: np.ndarray, valid: np.ndarray) -> None:
        """Takes in what an update was given: [B] step times, and [B] bool which of them ran."""
        count = int(min(len(runtime_s), self.most - self.samples))
        ran_s = np.asarray(runtime_s, np.float64)[:count][np.asarray(valid, bool)[:count]]
        self.ran_s.append(ran_s)
        self.history.append(
            HistoryEntry(
                evaluations=self.samples + count,
                elapsed_s=time.monotonic() - self.begin_s,
                best_s=float(np.fmin.reduce(ran_s, initial=self.best_s)),
                mean_s=float(ran_s.mean()) if len(ran_s) else math.nan,
                failed=count - len(ran_s),
            )
        )

    def first(self, window: int) -> tuple[float, float]:
        """Fastest and mean step, of the first updates that together have at least ``window`` samples.

        Of the samples that ran; infinite and nan where none did.
        """
        return self._best_and_mean_s(window, 1)

    def last(self, window: int) -> tuple[float, float]:
        """The same of the last updates."""
        return self._best_and_mean_s(window, -1)

    def _best_and_mean_s(self, window: int, step: int) -> tuple[float, float]:
        samples = np.diff([entry.evaluations for entry in self.history], prepend=0)[::step].cumsum()
        ran_s = np.concatenate([[], *self.ran_s[::step][: np.searchsorted(samples, window) + 1]])
        return float(ran_s.min(initial=math.inf)), float(ran_s.mean()) if len(ran_s) else math.nan


def observed(spec: MethodSpec, evaluations: int) -> tuple[MethodSpec, Seen]:
    """The same learned method, and what is going to be seen of its next learner in a search of so many evaluations."""
    seen = Seen(most=evaluations - 1 if spec.uses_start else evaluations)

    def build(*given: Any) -> _Watched:
        return _Watched(spec.build(*given), seen)

    return dataclasses.replace(spec, build=build), seen


class _Watched(tf.Module):
    """A learner that does what another one does."""

    def __init__(self, learner: PolicyLearner, seen: Seen):
        super().__init__(name="watched")
        self._learner = learner
        self._seen = seen
        self._next = 1

    def propose(self) -> Proposal:
        return self._learner.propose()

    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        self._learner.learn(actions, runtime_s, valid)
        self._seen.add(runtime_s.numpy(), valid.numpy())
        entropy = getattr(self._learner, "entropy", None)
        if callable(entropy) and self._seen.updates >= self._next:
            self._next = max(self._next + 1, math.ceil(self._next * _LATER))
            self._seen.entropy.append((self._seen.samples, float(entropy())))


@dataclasses.dataclass(frozen=True)
class Cell:
    """Result of one candidate with one seed."""

    # ``OK``, ``OUT_OF_MEMORY`` where nothing that it tried fits, ``NOT_RUN`` where it cannot do this
    # problem or wants a library
    status: str
    # Of its best, infinite where nothing fits, nan where not run. On a page of curves, of what is
    # learned, it is the best that the policy drew: where it began is not its own.
    runtime_s: float = math.nan
    peak_bytes: int = 0  # most memory in use on any one device; 0 where nothing runs
    evaluations: int = 0  # placements tried
    search_s: float = 0.0  # seconds that it took
    capped: bool = False  # it ended by the cap of seconds, so another run may find something else
    message: str = ""  # one line about a failure
    updates: int = 0  # gradient steps, or what stands for them; 0 where nothing is learned
    first_best_s: float = math.nan  # the fastest of the first samples
    first_mean_s: float = math.nan  # their mean
    last_mean_s: float = math.nan  # the mean of the last ones; nan where none of them ran
    curve: list[list[float]] = dataclasses.field(default_factory=list)  # fields of each ``Point``
    # Pairs of placements tried and nats a decision; empty where the learner does not say.
    entropy: list[list[float]] = dataclasses.field(default_factory=list)
    # [U] the device of each unit in its best; empty but where the batch is also put in parts.
    devices: list[int] = dataclasses.field(default_factory=list)

    @property
    def points(self) -> list[Point]:
        return [Point(int(evaluations), *rest) for evaluations, *rest in self.curve]

    def best_at(self, evaluations: int) -> float:
        """The fastest step at the first point with at least so many evaluations; at the end where there is none.

        Never less than that many are counted, so who is compared with it is not flattered. Infinite where nothing fits,
        nan where not run.
        """
        if self.status == NOT_RUN:
            return math.nan
        points = [point for point in self.points if point.evaluations >= evaluations] or self.points[-1:]
        return points[0].best_s if points and not math.isnan(points[0].best_s) else math.inf

    def reaches(self, target_s: float) -> Point | None:
        """The first point that is as fast as a step time; None where none is."""
        return next((point for point in self.points if point.best_s <= target_s), None)


@dataclasses.dataclass(frozen=True)
class Filled:
    """A problem with its cells."""

    row: Row  # of the study
    ops: int  # of the problem as shipped
    units: int
    bound_s: float  # no placement is faster
    cells: dict[str, tuple[Cell, ...]]  # name of a candidate -> one cell for each of its seeds
    # Of a table, all that may be there on the best device that is no CPU; infinite where it fits on
    # none of them, nan where there is none.
    one_accelerator_s: float = math.nan
    # Of a page of curves, what fractions are of: the best single device, or where the program fits on
    # none the fastest plan that costs nothing.
    reference: str = ""
    reference_s: float = math.nan
    # Of the program with its batch in the row's parts, nan where there are none: no placement is faster; each
    # accelerator computes its part, infinite where that does not fit.
    bound_in_parts_s: float = math.nan
    data_parallel_s: float = math.nan

    def times_s(self, name: str) -> tuple[float, ...]:
        """Step times of a candidate, ``ONE_ACCELERATOR`` or ``DATA_PARALLEL``.

        They are infinite without memory, nan where not run.
        """
        if name == ONE_ACCELERATOR:
            return (self.one_accelerator_s,)
        if name == DATA_PARALLEL:
            return (self.data_parallel_s,)
        return tuple(cell.runtime_s for cell in self.cells.get(name, ()))

    @property
    def best_known_s(self) -> float:
        """The shortest step in the row, infinite where nothing fits."""
        names = (*self.cells, ONE_ACCELERATOR, DATA_PARALLEL)
        times = [t for name in names for t in self.times_s(name)]
        return min((t for t in times if not math.isnan(t)), default=math.inf)


def fill(study: Study, folder: pathlib.Path) -> Iterator[Filled]:
    """Computes a study problem by problem; cells that ``folder`` has are taken from there.

    Prints a line for each cell. Yields a problem after each of its candidates, with those so far: the last of a problem
    is complete. After Ctrl-C the cells that are complete are in ``folder``.
    """
    for number, row in enumerate(study.rows, 1):
        yield from _filled(study, row, f"[{number}/{len(study.rows)}]", folder)
        gc.collect()  # a traced step is a ring of references, and two large ones do not fit side by side


def _filled(study: Study, row: Row, place: str, folder: pathlib.Path) -> Iterator[Filled]:
    """One row; its problem is dropped with it."""
    item, cluster = workloads.build(row.workload), Cluster.preset(row.cluster)
    problems = {"as_shipped": VARIANTS["as_shipped"](item, cluster)}
    split = _in_parts(item, problems["as_shipped"], row.parts) if row.parts > 1 else None
    if split is not None:
        problems[IN_PARTS] = split.problem
    for variant in (one.variant for one in study.candidates_of(row)):
        if variant not in problems:
            problems[variant] = VARIANTS[variant](item, cluster)
    # Units of another variant are other ones, so is the plan that puts them where the reference does.
    begun = {name: (one, None if study.is_table else _reference(one)) for name, one in problems.items()}
    problem, reference = begun["as_shipped"]
    filled = Filled(row, problem.num_ops, problem.num_units, lower_bounds(problem).best_s, {})
    told = f"{place} {row.name}: {filled.ops} ops in {filled.units} units"
    if reference is None:
        filled = dataclasses.replace(filled, one_accelerator_s=_one_accelerator_s(problem))
    else:
        filled = dataclasses.replace(filled, reference=reference.method, reference_s=reference.runtime_s)
        told += f"; {reference.method} takes {reference.runtime_s:.4f} s"
    if split is not None:
        filled = _with_parts(filled, split)
        told += f"; in {row.parts} parts {split.problem.num_ops} in {split.problem.num_units}"
    print(told, flush=True)
    is_decided = False  # what of a batch in parts stays whole
    for one in study.candidates_of(row):
        start = None
        if study.begins:
            start = search(problem, study.begins, budget_evaluations=_CHEAP).placement.device_of_unit
        if split is not None and one.variant == IN_PARTS:
            best = _best_of_whole(study, filled)
            if best is not None and not is_decided:  # by the best of the whole, which come first
                split = split.where_it_pays(best.runtime_s)
                begun[IN_PARTS] = split.problem, None if study.is_table else _reference(split.problem)
                filled, is_decided = _with_parts(filled, split), True
            whole = None if best is None else Placement(problem, np.array(best.devices, np.int32))
            start = np.stack([one.device_of_unit for one in split.starts([] if whole is None else [whole])])
        seeds = one.seeds_of(study.seeds)
        cells = [
            _kept_cell(study, row, *begun[one.variant], one, seed, folder, start, item) for seed in seeds
        ]
        filled = dataclasses.replace(filled, cells={**filled.cells, one.name: tuple(cells)})
        yield filled


def _in_parts(item: Item, whole: Problem, parts: int) -> Form:
    """The program of a row in parts."""
    program = split_program(item, parts)
    return split_form(program, VARIANTS[IN_PARTS](program.item, whole.cluster), Form(whole, item))


def _with_parts(filled: Filled, split: Form) -> Filled:
    bound_s = lower_bounds(split.problem).best_s
    data_parallel_s = data_parallel_row(split.all_in_parts or split).simulated_s
    data_parallel_s = math.inf if data_parallel_s is None else data_parallel_s
    return dataclasses.replace(filled, bound_in_parts_s=bound_s, data_parallel_s=data_parallel_s)


def _best_of_whole(study: Study, filled: Filled) -> Cell | None:
    """The fastest plan of the whole batch so far."""
    names = [one.name for one in study.candidates if one.variant == "as_shipped"]
    found = [cell for name in names for cell in filled.cells.get(name, ()) if cell.devices]
    return min(found, key=lambda cell: cell.runtime_s, default=None)


def _one_accelerator_s(problem: Problem) -> float:
    devices = [d for d, device in enumerate(problem.cluster.devices) if device.type != "CPU"]
    if not devices:
        return math.nan
    rows = np.repeat(np.array(devices)[:, np.newaxis], problem.num_units, axis=1)
    found = search_simulator(problem).evaluate(problem.legalized(rows))
    fits = found.status == Status.OK
    return float(found.runtime_s[fits].min()) if fits.any() else math.inf


def _reference(problem: Problem) -> SearchResult:
    """The best single device; where none fits, the fastest plan that costs nothing.

    Raises:
      NothingFits: no such plan fits.
    """
    singles = methods.find(methods.REFERENCE)
    try:
        return search(problem, singles.name, budget_evaluations=_CHEAP)
    except NothingFits:
        beside = [spec for spec in methods.having(Role.BESIDE) if spec.name != singles.name]
        found = [search(problem, spec.name, budget_evaluations=_CHEAP) for spec in beside]
        return min(found, key=lambda one: one.runtime_s)


def _kept_cell(
    study: Study,
    row: Row,
    problem: Problem,
    reference: SearchResult | None,
    one: Candidate,
    seed: int,
    folder: pathlib.Path,
    start: np.ndarray | None,
    item: Item,
) -> Cell:
    """The cell that is on disk if all that makes it is the same, else a new one, which then is."""
    config = one.config(row, problem.num_units)
    made = made_of(problem, one.method, config, seed, study.evaluations, study.cap_s)
    if reference is not None:
        made |= {"begins_at": reference.method, "window": study.window}
    if row.parts > 1:
        made |= {"keeps_devices": True}
    if start is not None:
        made |= {"begins_at": hashlib.sha256(start.tobytes()).hexdigest()}
    if one.order != NO_ORDER or one.fused:
        made |= {"order": one.order, "fused": one.fused}
    stem = re.sub(r"[^\w.-]+", "_", f"{row.workload}@{row.cluster}@{one.name}@{seed}".replace("@", "--"))
    path = folder / f"{stem}.json"
    known = read_kept(path, made)
    if known is not None:
        return known
    cell = _searched(study, problem, reference, one, config, seed, start, item)
    if row.parts == 1 or one.variant != "as_shipped":
        cell = dataclasses.replace(cell, devices=[])
    # A library can be installed, so what could not run is asked again the next time.
    if cell.status != NOT_RUN:
        keep(path, made, cell)
    unit_s = 1.0 if reference is None else reference.runtime_s
    print(f"  {one.name}, seed {seed}: {_told(cell, unit_s)}", flush=True)
    return cell


def _searched(
    study: Study,
    problem: Problem,
    reference: SearchResult | None,
    one: Candidate,
    config: dict[str, Any],
    seed: int,
    start: np.ndarray | None,
    item: Item,
) -> Cell:
    spec, seen = methods.find(one.method), None
    if not spec.uses_start:
        start = None
    if reference is not None:
        # From the single device: a list schedule that fits is hard to improve, and what it is worth is not learned.
        if spec.uses_start and Role.REFERENCE in methods.find(reference.method).roles:
            start = reference.placement.device_of_unit
        if spec.kind == Kind.LEARNED:
            spec, seen = observed(spec, study.evaluations)
    evaluations = max(1, study.evaluations - len(RULES)) if one.fused else study.evaluations
    try:
        result = search(
            problem, spec, study.cap_s, evaluations, seed, start=start, config=config, order=one.order
        )
    except NothingFits as error:
        return Cell(OUT_OF_MEMORY, math.inf, message=str(error))
    except InputError as error:
        return Cell(NOT_RUN, message=str(error))
    if result.interrupted:
        raise KeyboardInterrupt
    runtime_s, peak_bytes = result.runtime_s, max(result.peak_bytes.values())
    fused = fastest_clusters(item, result.placement) if one.fused else None
    if fused is not None and fused.simulated_s is not None and fused.simulated_s < runtime_s:
        runtime_s, peak_bytes = fused.simulated_s, max(fused.peak_bytes.values())
    cell = Cell(
        status=OK,
        runtime_s=runtime_s,
        peak_bytes=peak_bytes,
        evaluations=result.evaluations + (len(RULES) if one.fused else 0),
        search_s=result.search_s,
        capped=result.search_s >= study.cap_s,
        devices=result.placement.device_of_unit.tolist(),
    )
    if reference is None:
        return cell
    history = result.history if seen is None else seen.history
    cell = dataclasses.replace(cell, curve=[list(dataclasses.astuple(p)) for p in curve_of(history, POINTS)])
    return cell if seen is None else _learned(cell, seen, study.window)


def _learned(cell: Cell, seen: Seen, window: int) -> Cell:
    """Cell with what was seen of the learner, without its beginning."""
    (first_best_s, first_mean_s), (_, last_mean_s) = seen.first(window), seen.last(window)
    fits = math.isfinite(seen.best_s)
    return dataclasses.replace(
        cell,
        status=OK if fits else OUT_OF_MEMORY,
        runtime_s=seen.best_s if fits else math.inf,
        message="" if fits else "nothing that it drew fits",
        updates=seen.updates,
        first_best_s=first_best_s,
        first_mean_s=first_mean_s,
        last_mean_s=last_mean_s,
        entropy=[list(pair) for pair in seen.entropy],
    )


def _told(cell: Cell, unit_s: float) -> str:
    if cell.status != OK:
        return cell.message
    means = ""
    if cell.updates:
        first, last = cell.first_mean_s / unit_s, cell.last_mean_s / unit_s
        means = f", samples {first:.3f} to {last:.3f} in {cell.updates} updates"
    return f"best {cell.runtime_s / unit_s:.4f}{means} ({cell.evaluations} tried, {cell.search_s:.1f} s)"


def made_of(
    problem: Problem, method: str, config: object, seed: int, evaluations: int, cap_s: float
) -> dict[str, Any]:
    """All that decides what a search finds, as JSON data."""
    spec = methods.find(method)
    settings = dataclasses.asdict(configured(spec, config))
    made = {
        "problem": problem.digest(),
        "method": method,
        "seed": seed,
        "evaluations": evaluations,
        "cap_s": cap_s,
        "settings": settings,
        "versions": dict(spec.versions),
    }
    # What a file of weights is called says little of what is in it. Those that ship are beside a method's settings.
    weights = weights_path(settings.get("weights", ""), inspect.getfile(spec.config))
    return (
        {**made, "weights": hashlib.sha256(weights.read_bytes()).hexdigest()} if weights.is_file() else made
    )


def read_kept(path: pathlib.Path, made: dict[str, Any]) -> Cell | None:
    """The cell that is on disk; None where there is none, it was made of something else, or is of another version."""
    try:
        known = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    if not isinstance(known, dict) or known.get("key") != _key(made):
        return None
    try:
        return Cell(**known.get("cell", {}))
    except TypeError:
        return None


def keep(path: pathlib.Path, made: dict[str, Any], cell: Cell) -> None:
    """Writes a cell, whole or not at all."""
    content = {"key": _key(made), "made_of": made, "cell": dataclasses.asdict(cell)}
    write_atomically(path, json.dumps(content, indent=1, default=str))


def _key(made: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made, sort_keys=True, default=str).encode()).hexdigest()
