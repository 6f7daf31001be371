"""What `place` and `compare` say: a table for people, summary.json for programs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rich.console
import rich.table

from tf_placer import quantities
from tf_placer.command_line import comparison
from tf_placer.command_line.candidate import NOT_RUN, Candidate
from tf_placer.errors import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.files import replacing
from tf_placer.folders import reserved
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.quantities import milliseconds, percentage
from tf_placer.rewrite.apply_placement import apply_placement
from tf_placer.search import methods
from tf_placer.search.live import LiveResult
from tf_placer.search.result import PROVEN, SIMULATED, SearchResult, takes_no_more
from tf_placer.search.spec import Role

# What a run writes, in the order in which it appears.
SAVED_MODEL, META_GRAPH = "saved_model", "placed_meta_graph.pb"
RESULTS = (
    SAVED_MODEL,
    META_GRAPH,
    "placement.json",
    "placed_graph.pb",
    comparison.TABLE,
    comparison.PICTURE,
    "summary.json",
)


@dataclasses.dataclass(frozen=True)
class Live:
    """What is told beyond the candidates where the runtime had the last word.

    Attributes:
      recommended: what the live search recommends; the plan that is written unless the method's own was asked for.
      found: its live search.
    """

    recommended: Candidate
    found: LiveResult


@dataclasses.dataclass(frozen=True)
class Report:
    """The plan that is written beside the others that were found.

    Attributes:
      item: the program; None of a profiled graph, which has none to write.
      problem: the program on the cluster.
      chosen: the placement to write, whoever found it; it has a result.
      baselines: the others.
      live: of a search on live devices.
      asked: the method that was asked for; None where that is the one of ``chosen``.
    """

    item: Item | None
    problem: Problem
    chosen: Candidate
    baselines: tuple[Candidate, ...]
    live: Live | None = None
    asked: str | None = None

    def __post_init__(self) -> None:
        if self.chosen.result is None:
            raise InputError(self.chosen.message)

    @property
    def method(self) -> str:
        """The method that was asked for."""
        return self.asked or self.chosen.method

    @property
    def result(self) -> SearchResult:
        """The search behind ``chosen``."""
        assert self.chosen.result is not None  # checked when made
        return self.chosen.result

    @property
    def tightest(self) -> SearchResult:
        """The search that knows most of what no placement can beat: what one method proves holds for all."""
        found = [candidate.result for candidate in self._candidates if candidate.result is not None]
        return max(found, key=lambda result: result.lower_bound_s)

    @property
    def recommended(self) -> Candidate:
        """The fastest candidate by measured time, or by simulated time where nothing was measured.

        A live search knows more of noise and has decided.
        """
        if self.live is not None:
            return self.live.recommended
        return fastest((self.chosen, *self.baselines)) or self.chosen

    def summary(self) -> dict[str, Any]:
        """The content of summary.json: seconds are floats, what was not measured is None."""
        beside = list(self.baselines)
        if _is_single(self.chosen.method) and not _is_single(self.method):
            beside.append(self.chosen)
        return {
            "workload": self.problem.name,
            "cluster": self.problem.cluster.name,
            "method": self.method,
            "written": self.chosen.method,
            "found_by": {c.method: c.result.found_by for c in self._candidates if c.result},
            "seed": self.result.seed,
            "settings": {c.method: c.result.settings for c in self._candidates if c.result},
            "ops": self.problem.num_ops,
            "units": self.problem.num_units,
            "runtime_s": self.result.runtime_s,
            "measured_s": self.chosen.measured_s,
            "lower_bound_s": self.tightest.lower_bound_s,
            "lower_bounds": {f"{name}_s": bound_s for name, bound_s in self._bounds()},
            "tightest_bound": self.tightest.tightest_bound,
            "proven_optimal": [c.method for c in self._candidates if self._is_optimal(c)],
            "single_device_s": self.result.single_device_s,
            "baselines": {c.method: c.simulated_s for c in beside},
            "baselines_measured": {c.method: c.measured_s for c in beside},
            "baselines_evaluations": {c.method: c.result.evaluations for c in beside if c.result},
            "peak_bytes": self.result.peak_bytes,
            "status": self.chosen.status.name,
            "evaluations": self.result.evaluations,
            "search_s": self.result.search_s,
            "interrupted": self.result.interrupted,
            "recommended": self.recommended.method,
            "guessed_op_types": self.problem.guessed_op_types,
            "estimated_sizes": self.problem.estimated_sizes,
            **(_live_summary(self.live.found) if self.live else {}),
        }

    def print(self, console: rich.console.Console) -> None:
        """Prints the table, the verdict, and what to know before believing either."""
        console.print(self._table())
        console.print(self.verdict(), soft_wrap=True)
        for candidate in (*self.baselines, self.chosen):
            if candidate.message:
                console.print(f"{candidate.method}: {candidate.message}", soft_wrap=True)
        if self.result.interrupted:
            console.print("The search was interrupted; this is the best it had found.")
        if self.problem.guessed_op_types:
            guesses = ", ".join(f"{op} x {count}" for op, count in self.problem.guessed_op_types.items())
            console.print(f"The cost of these ops is a guess: {guesses}.", soft_wrap=True)
        if self.problem.estimated_sizes:
            rules = "; ".join(f"{count} {rule}" for rule, count in self.problem.estimated_sizes.items())
            count = sum(self.problem.estimated_sizes.values())
            console.print(
                f"The sizes of {count} tensors depend on data and are estimates: {rules}.", soft_wrap=True
            )

    def verdict(self) -> str:
        """What is gained over a single device, or that nothing is."""
        if self.live is not None:
            return _live_verdict(self.live, (self.chosen, *self.baselines))
        single = next((c for c in self._candidates if _is_single(c.method)), None)
        how = "in the simulator" if self.chosen.measured_s is None else "on the runtime"
        if self.chosen.step_s is None:
            return f"{self.chosen.method} did not run: {self.chosen.status.name}."
        if _is_single(self.method):
            return f"The best single device takes {milliseconds(self.chosen.step_s)} {how}; nothing here beats it."
        asked = next((c for c in self._candidates if c.method == self.method), self.chosen)
        return " ".join([_standing(asked, single, how), *self._about_the_plan_written(single)])

    def write_comparison(self, folder: pathlib.Path) -> None:
        """Writes what ``compare`` has beyond ``write``: it is ``also`` there."""
        comparison.write_comparison(self._candidates, self.tightest.lower_bound_s, folder)

    @property
    def _candidates(self) -> tuple[Candidate, ...]:
        return (*self.baselines, self.chosen)

    def _bounds(self) -> list[tuple[str, float]]:
        """(name, seconds) of every bound, and of what a method has proven beyond them."""
        rows = [(name, bound_ns / 1e9) for name, bound_ns in self.result.bounds.rows]
        return rows + ([(PROVEN, self.tightest.proven_s)] if self.tightest.tightest_bound == PROVEN else [])

    def _is_optimal(self, candidate: Candidate) -> bool:
        """Whether it is proven that no placement that fits is faster in the simulator."""
        by_simulator = candidate.result is not None and candidate.result.evaluator == SIMULATED
        bound_s = self.tightest.lower_bound_s
        return by_simulator and takes_no_more(candidate.simulated_s or 0.0, bound_s)

    def _about_the_plan_written(self, single: Candidate | None) -> list[str]:
        """Sentences that are needed where another method's plan is written, or would be the better one."""
        single_is_fastest = self.recommended is single
        advice = ["Leave the program on one device."] if single_is_fastest else []
        if self.chosen.method != self.method:
            if single_is_fastest:
                return [
                    *advice,
                    f"The plan written is that of the single device, {milliseconds(self.chosen.step_s)}.",
                ]
            return [
                f"{self.chosen.method} is the fastest, {milliseconds(self.chosen.step_s)}: the plan written is its "
                f"(--write=method writes that of {self.method})."
            ]
        if self.recommended is self.chosen:
            return []
        if not single_is_fastest:
            advice = [f"{self.recommended.method} is faster still, {milliseconds(self.recommended.step_s)}."]
        return [*advice, f"The plan written is that of {self.chosen.method}."]

    def write(
        self,
        out: pathlib.Path,
        made_for: Mapping[str, Any] | None = None,
        also: Callable[[pathlib.Path], None] | None = None,
    ) -> tuple[pathlib.Path, ...]:
        """Writes placement.json, placed_graph.pb and summary.json into ``out``; returns their paths.

        They appear together, in place of those of an earlier run, or nothing changes. Who is killed in the instant
        between leaves no summary.json: where it lies, the rest is complete and of the same run.

        Args:
          out: the folder.
          made_for: the flags that the plan remembers.
          also: writes more of ``RESULTS`` into the folder that it is given.

        Raises:
          InputError: what ``also`` raises.
        """
        placed = None if self.item is None else apply_placement(self.item, self.result.placement)
        with replacing(out, RESULTS) as unfinished:
            if also is not None:
                also(unfinished)
            self.result.placement.save(unfinished / "placement.json", made_for)
            if placed is not None:
                (unfinished / "placed_graph.pb").write_bytes(placed.SerializeToString(deterministic=True))
            summary = json.dumps(self.summary(), indent=1, allow_nan=False) + "\n"
            (unfinished / "summary.json").write_text(summary, encoding="utf8")
        return tuple(out / name for name in RESULTS if (out / name).exists())

    def _table(self) -> rich.table.Table:
        problem = self.problem
        table = rich.table.Table(
            title=f"{problem.name} on {problem.cluster.name}: "
            f"{problem.num_ops} ops in {problem.num_units} units"
        )
        table.add_column("step time of")
        for column in ("simulated", "vs single", "measured", "tried", "peak"):
            table.add_column(column, justify="right")
        for candidate in (*self.baselines, self.chosen):
            evaluations = candidate.result.evaluations if candidate.result else 0
            table.add_row(
                _row_name(candidate) + (", proven optimal" if self._is_optimal(candidate) else ""),
                _simulated(candidate),
                _gain(candidate.simulated_s, self.result.single_device_s),
                milliseconds(candidate.measured_s),
                str(evaluations),
                "" if candidate.peak_bytes is None else f"{candidate.peak_bytes / 2**30:.2f} GiB",
            )
        table.add_section()
        for name, bound_s in self._bounds():
            tightest = " (tightest)" if name == self.tightest.tightest_bound else ""
            gain = _gain(bound_s, self.result.single_device_s)
            table.add_row(f"bound: {name.replace('_', ' ')}{tightest}", milliseconds(bound_s), gain, "", "")
        return table


def fastest(candidates: Sequence[Candidate], asked: str | None = None) -> Candidate | None:
    """The candidate with the shortest step, measured where something was; None when none runs.

    On a tie the single device wins: a plan that gains nothing is not worth having. Then the method that was asked for.

    Args:
      candidates: all measured, or none.
      asked: the method that was asked for.
    """
    ran = [c for c in candidates if c.step_s is not None]
    return min(ran, key=lambda c: (c.step_s, not _is_single(c.method), c.method != asked), default=None)


def _standing(candidate: Candidate, single: Candidate | None, how: str) -> str:
    """One sentence about a candidate beside the single device."""
    if candidate.step_s is None:
        return f"{candidate.method} did not run: {candidate.status.name}."
    if single is None or single.step_s is None:
        return f"No single device was timed; {candidate.method} takes {milliseconds(candidate.step_s)} {how}."
    gain = round(1 - candidate.step_s / single.step_s, 3)
    if gain > 0:
        return f"{candidate.method} is {percentage(gain)} faster than a single device {how}."
    slower = f" ({percentage(-gain)} slower)" if gain else ""
    return f"{candidate.method} is NOT faster than a single device {how}{slower}."


def _live_verdict(live: Live, candidates: Sequence[Candidate]) -> str:
    found = live.found
    single = next((c for c in candidates if _is_single(c.method)), None)
    lines = [f"Recommended: {_row_name(live.recommended)}. {found.why[0].upper()}{found.why[1:]}."]
    if candidates[0] is not live.recommended:
        lines.append(f"The plan written is that of {_row_name(candidates[0])}, as --write=method asks.")
    if single is None or single.measured_s is None:
        return "\n".join(lines)
    for candidate in candidates:
        if _is_single(candidate.method) or candidate.measured_s is None or candidate.simulated_s is None:
            continue
        measured = 1 - candidate.measured_s / single.measured_s
        simulated = 1 - candidate.simulated_s / single.simulated_s if single.simulated_s else None
        lines.append(
            f"{candidate.method}: {quantities.gain(measured)} than the best single device on the runtime, "
            f"{quantities.gain(simulated)} in the simulator fitted to what was measured."
        )
    return "\n".join(lines)


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


def reserved_out(
    out: pathlib.Path, saved_model: str | None = None
) -> contextlib.AbstractContextManager[None]:
    """Where results of this run, and of no other at the same time, can be written to ``out``: see ``reserved``.

    Args:
      out: where they go.
      saved_model: folder of the SavedModel that they are made of, which they must not replace.

    Raises:
      InputError: they would replace it.
    """
    if saved_model:
        model, results = pathlib.Path(saved_model).resolve(), out.resolve()
        if results.is_relative_to(model) or model.is_relative_to(results / "saved_model"):
            raise InputError(
                f"--out={out} would be written into --saved_model={saved_model}; give another folder"
            )
    return reserved(out, f"--out={out}")


def _row_name(candidate: Candidate) -> str:
    if _is_single(candidate.method):
        return "single device"
    by = candidate.result.found_by if candidate.result else candidate.method
    return candidate.method if by == candidate.method else f"{candidate.method} ({by})"


def _simulated(candidate: Candidate) -> str:
    """The step time in the simulator, or why there is none."""
    if candidate.result is not None:
        return milliseconds(candidate.simulated_s)
    return "not run" if candidate.status_name == NOT_RUN else "OOM"


def _is_single(method: str) -> bool:
    return method == methods.the(Role.REFERENCE).name


def _gain(seconds: float | None, single_s: float | None) -> str:
    share = None if seconds is None or not single_s else seconds / single_s - 1
    return percentage(share, signed=True)
