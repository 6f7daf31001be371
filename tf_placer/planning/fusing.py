"""Clusters for a plan, by measurement: rules propose, the runtime times them in turn, and bad ones are taken out."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import heapq
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.tensorflow_internals import has_xla
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import milliseconds, ratio
from tf_placer.evaluation.attempts import UNPLACED_DEVICE, Attempt, OpenProgram, try_programs_as_called
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import Status
from tf_placer.graph.item import Item
from tf_placer.planning.forms import Form
from tf_placer.planning.live import raced_anew
from tf_placer.planning.outcome import AS_IT_IS, FUSED, IN_WORDS, PLAN, SINGLE, Note, Outcome, Timed
from tf_placer.problem.placement import NO_CLUSTER, Placement
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.graph_program import LoadedProgram, build_program
from tf_placer.runtime.timing import TURN_S, Limit, OtherLoad, clearly_slower, race_steps, race_times_s
from tf_placer.transform.fusion import PREFIX, RULES, Savings, convex_clusters, savings, starts_kernel

UNFUSED = "unfused"
_CLUSTERS_SHARE = 0.8  # of the time for fusing; the rest is for the race of the fused plan with the others
_FEW_ROUNDS, _WARMUPS, _TRACES = 7, 2, 3
_COMPILE_S_PER_KERNEL = 0.02  # before anything was compiled here
_REFINEMENTS = 3  # of the clusters of one rule
_BISECTED = 16  # kernels from which a bad cluster is cut in two and not given up


@dataclasses.dataclass(frozen=True)
class Tried:
    """Clusters that were timed, or did not run."""

    name: str  # of the rule, with how often bad clusters were taken out
    saved: Savings
    compile_s: float | None = None  # of the first step, which compiles; None where it failed
    share: float | None = None  # of the unfused step, in turn with it; None where it failed
    message: str = ""  # why it failed, in one line


@dataclasses.dataclass(frozen=True)
class Fusing:
    """Outcome of a search for clusters."""

    placement: Placement  # with the clusters that are clearly faster; as it was where none are
    name: str  # of the clusters
    fused_s: float  # of a step in turn, of the fastest clusters, also where they are not clearly faster
    unfused_s: float
    fused_spread_s: tuple[float, float]  # quartiles
    unfused_spread_s: tuple[float, float]
    compile_s: float  # of the first step with these clusters
    is_faster: bool  # the clusters are kept
    tried: tuple[Tried, ...]

    @property
    def sentence(self) -> str:
        """What is fused and what that is worth."""
        took = f"{ratio(self.fused_s / self.unfused_s)} of the step without, in turn"
        if not self.is_faster:
            if all(t.share is None for t in self.tried):
                why = "".join(f" that runs ({attempt.message})" for attempt in self.tried[-1:])
                return f"Nothing is fused: there was nothing to fuse{why}."
            tried = f"{sum(t.share is not None for t in self.tried)} sets of clusters were timed"
            return f"Nothing is fused: {tried}; the fastest took {took}, which is not clearly faster."
        assert self.placement.cluster_of_op is not None  # it is faster
        saved = savings(self.placement.problem, self.placement.cluster_of_op)
        return (
            f"{saved.sentence(self.name)}: {milliseconds(self.fused_s)}, {took}. The first step took "
            f"{self.compile_s:.1f} s, in which XLA compiles them, or loads what it compiled here before; it may add in "
            "another order, so the last bits differ."
        )


TryPrograms = Callable[[Callable[[OpenProgram], Fusing], float], Attempt[Fusing]]
"""``RuntimeEvaluator.try_programs`` or ``try_programs_as_called`` of a cluster."""


def find_clusters(
    item: Item,
    placement: Placement,
    try_programs: TryPrograms,
    budget_s: float,
    rounds: int = 20,
    device_of_op: Mapping[str, str] | None = None,
    is_given: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Fusing:
    """Searches clusters for a plan by timing them in turn with the plan without.

    Each rule's clusters are compiled and timed. A trace tells what each cluster takes and what its ops took without it:
    those that lose are taken out, large ones cut in two, and then what is left is timed again, what promises most
    first, until the budget is spent.

    Args:
      try_programs: where they run.
      budget_s: of all of it; workers that still compile then are ended, and what was timed before counts.
      rounds: turns of the last race.
      device_of_op: op name -> device, where the plan's devices have other names there.
      is_given: the plan's own clusters are timed, and no others.

    Raises:
      InputError: XLA is not there, or the plan does not run without clusters.
      WorkerError: the workers cannot be started.
    """
    check_has_xla("fusion")
    search = _Search(
        item, placement, budget_s, rounds, device_of_op or placement.device_names, is_given, clock
    )
    attempt = try_programs(search.run, budget_s)
    if attempt.status == Status.TIMEOUT and search.best is not None:
        return search.found()
    return attempt.value_or(InputError, "no clusters could be timed: ")


def find_clusters_here(
    item: Item, placement: Placement, budget_s: float, rounds: int = 20, is_given: bool = False
) -> Fusing:
    """``find_clusters`` for a function that stays in the process that calls it, on one device, as it runs there."""
    try_programs = functools.partial(try_programs_as_called, placement.problem.cluster)
    devices = dict.fromkeys(item.index.names, UNPLACED_DEVICE)
    return find_clusters(item, placement, try_programs, budget_s, rounds, devices, is_given)


def fused_here(whole: Form, budget_s: float) -> Outcome:
    """The outcome for a function that stays where it is, with the clusters that are clearly faster.

    Raises InputError where it cannot be timed, or as ``find_clusters``.
    """
    problem, item = whole.problem, whole.item
    assert item is not None  # it is a function
    if not item.runs_standalone:
        raise InputError(f"clusters cannot be timed, because {item.why_not_standalone}")
    plain = Placement(problem, problem.everything_on(0))
    load = OtherLoad()
    fusing = find_clusters_here(item, plain, budget_s)
    unfused: dict[str, Any] = {"raced_s": fusing.unfused_s, "spread_s": fusing.unfused_spread_s}
    fused: dict[str, Any] = {"raced_s": fusing.fused_s, "spread_s": fusing.fused_spread_s}
    plan = Timed.simulated(PLAN, fusing.placement, is_clear=fusing.is_faster, **fused)
    rivals = Timed.simulated(SINGLE, plain, **unfused), Timed(AS_IT_IS, **unfused)
    is_faster, count = IN_WORDS[fusing.is_faster], sum(t.share is not None for t in fusing.tried)
    notes = {
        Note.WHY: f"{fusing.name}, of {count} sets of clusters in turn",
        Note.FUSED: fusing.sentence,
        Note.BESIDE_UNPLACED: f"{is_faster} than the unplaced function, in a process like this one",
        Note.LOAD: load.share,
        Note.TIMED_AT_S: time.time(),
    }
    return Outcome(whole, plan, rivals, notes=notes)


def with_measured_clusters(
    outcome: Outcome, timing: Callable[[Placement], RuntimeEvaluator], seconds: float
) -> Outcome:
    """The outcome with clusters of its plan, searched by measurement and written if clearly faster.

    With clusters the plan races anew with the others; ``timing`` is as ``race`` takes it. Raises as ``find_clusters``.
    """
    before, item = outcome.written, outcome.form.item
    assert item is not None  # it ran
    try_programs = timing(outcome.placement).try_programs
    fusing = find_clusters(item, outcome.placement, try_programs, _CLUSTERS_SHARE * seconds)
    outcome = outcome.noted({Note.FUSED: fusing.sentence})
    if not fusing.is_faster:
        return outcome
    plan = Placement.from_decisions(outcome.problem, fusing.placement.decisions)
    of_method = ("status", "message", "found_by", "evaluations", "search_s", "search")
    fused = Timed.simulated(FUSED, plan, **{name: getattr(before, name) for name in of_method})
    plain = dataclasses.replace(before, traced=None)
    if outcome.notes.get(Note.DECIDED) == before.name:
        outcome = outcome.noted({Note.DECIDED: FUSED})
    outcome = dataclasses.replace(outcome, written=fused, beside=(*outcome.beside, plain))
    return raced_anew(outcome, timing)


def with_simulated_clusters(outcome: Outcome) -> Outcome:
    """The outcome for described devices with the rule's clusters that are fastest in the simulator, if any gain."""
    written, item = outcome.written, outcome.form.item
    assert item is not None  # profiled graphs are not fused
    best = fastest_clusters(item, outcome.placement)
    if best is None or written.simulated_s is None:
        return outcome.noted({Note.FUSED: "Nothing is fused: no cluster has kernels enough."})
    if best.simulated_s is None or best.placement is None or best.simulated_s >= written.simulated_s:
        return outcome.noted({Note.FUSED: "Nothing is fused: no rule's clusters gain in the simulator."})
    saved = savings(best.placement.problem, best.placement.cluster_of_op)
    sentence = (
        f"{saved.sentence(best.name)}: {ratio(best.simulated_s / written.simulated_s)} of the "
        "step without, in the simulator, which knows of launches and memory alone and not of what XLA makes of an op."
    )
    fused = dataclasses.replace(
        written, name=FUSED, placement=best.placement, simulated_s=best.simulated_s, traced=None
    )
    outcome = outcome.noted({Note.FUSED: sentence})
    return dataclasses.replace(outcome, written=fused, beside=(*outcome.beside, written))


def fastest_clusters(item: Item, plan: Placement) -> Timed | None:
    """Plan with the clusters of the rule, its name, that are fastest in the simulator; None where no rule makes any."""
    sets = {name: rule.clusters(item, plan.device_names) for name, rule in RULES.items()}
    rows = [
        Timed.simulated(name, dataclasses.replace(plan, cluster_of_op=clusters))
        for name, clusters in sets.items()
        if (clusters != NO_CLUSTER).any()
    ]
    return min(rows, key=lambda row: math.inf if row.simulated_s is None else row.simulated_s, default=None)


def check_has_xla(said: str) -> None:
    """Raises InputError where this build of TensorFlow lacks XLA; the message says what needs it."""
    if not has_xla():
        raise InputError(
            f"{said} needs XLA, which TensorFlow {tf.__version__} was built without here; leave it out, or install a "
            "build that has it"
        )


@dataclasses.dataclass(frozen=True)
class _Candidate:
    rule: str
    title: str
    cluster_of_op: np.ndarray
    refinements: int = 0


@dataclasses.dataclass(frozen=True)
class _Opened:
    candidate: _Candidate | None  # None of the plan without clusters
    program: LoadedProgram
    close: Callable[[], None]
    compile_s: float = 0.0


@dataclasses.dataclass(eq=False)
class _Search:
    """Times one candidate after the other beside the plan without clusters and the best so far."""

    item: Item
    placement: Placement
    budget_s: float
    rounds: int
    device_of_op: Mapping[str, str]
    is_given: bool
    clock: Callable[[], float]
    tried: list[Tried] = dataclasses.field(default_factory=list)
    late: _Candidate | None = None  # it compiles, or there was no time for that
    # The fastest clusters so far, or the plan without; step times of the plan without and of them.
    best: tuple[_Opened, list[list[float]]] | None = None
    compile_s_per_kernel: float = _COMPILE_S_PER_KERNEL

    def __post_init__(self) -> None:
        self.began_s, self.limit = self.clock(), Limit(self.clock)
        self.limit.ends_in(self.budget_s)
        self.starts_kernel = starts_kernel(self.item)
        self.plain = dataclasses.replace(self.placement, cluster_of_op=None)

    def run(self, open_program: OpenProgram) -> Fusing:
        """Searches; programs that are no longer needed are closed."""
        with contextlib.ExitStack() as stack:
            plain = self._opened(None, open_program, stack)
            self.best = plain, self._turns([plain], 1)
            race_s = 2 * (self.rounds + _WARMUPS) * max(self.best[1][0][0], TURN_S)
            op_ns = _traced_ns(plain)
            best: _Opened | None = None
            best_share = 1.0
            sets = {"given": self.placement.cluster_of_op}
            if not self.is_given:
                sets = {name: rule.clusters(self.item, self.device_of_op) for name, rule in RULES.items()}
            proposed = [
                _Candidate(name, name, clusters) for name, clusters in sets.items() if clusters is not None
            ]
            # What there is to hope for, and the number of the candidate: the rules' come first, in their order.
            waiting = [(-math.inf, number, candidate) for number, candidate in enumerate(proposed)]
            seen: set[bytes] = set()
            while waiting:
                candidate = heapq.heappop(waiting)[2]
                in_cluster, key = candidate.cluster_of_op != NO_CLUSTER, candidate.cluster_of_op.tobytes()
                is_new = key not in seen and bool(in_cluster.any())
                seen.add(key)
                compile_s = self.compile_s_per_kernel * int(self.starts_kernel[in_cluster].sum())
                is_late = self.clock() - self.began_s + compile_s + race_s >= self.budget_s
                if not is_new or is_late:
                    self.late = candidate if is_new else self.late
                    continue
                opened = self._tried_out(candidate, open_program, stack)
                if opened is None:
                    continue
                samples = self._turns([plain, *([] if best is None else [best]), opened], _FEW_ROUNDS)
                share = float(np.median(np.array(samples[-1]) / np.array(samples[0])))
                self._note(candidate, compile_s=opened.compile_s, share=share)
                better, hoped = self._refined(candidate, op_ns, _traced_ns(opened))
                if share < best_share or self.is_given:
                    if best is not None:
                        best.close()
                    best, best_share = opened, share
                    self.best = best, [samples[0], samples[-1]]
                else:
                    opened.close()
                if better.refinements <= _REFINEMENTS and hoped < min(best_share, 1.0) and not self.is_given:
                    heapq.heappush(waiting, (hoped, len(proposed) + len(self.tried), better))
            if best is not None and not self.limit.is_over:  # the last word
                self.best = best, self._turns([plain, best], self.rounds, _WARMUPS)
            return self.found()

    def _note(self, candidate: _Candidate, **result: Any) -> None:
        saved = savings(self.plain.problem, candidate.cluster_of_op)
        self.tried.append(Tried(candidate.title, saved, **result))

    def _opened(
        self, candidate: _Candidate | None, open_program: OpenProgram, stack: contextlib.ExitStack
    ) -> _Opened:
        """A program that has run twice: its first step compiles."""
        resources = contextlib.ExitStack()
        stack.push(resources)
        cluster_of_op = None if candidate is None else candidate.cluster_of_op
        placement = dataclasses.replace(self.plain, cluster_of_op=cluster_of_op)
        graph_def = rewrite(self.item, placement, self.device_of_op)
        program = resources.enter_context(open_program(build_program(self.item, graph_def)))
        began_s = self.clock()
        program.step()
        first_s = self.clock() - began_s
        program.step()
        return _Opened(candidate, program, resources.close, first_s)

    def _tried_out(
        self, candidate: _Candidate, open_program: OpenProgram, stack: contextlib.ExitStack
    ) -> _Opened | None:
        """The candidate compiled; None where XLA refuses it, which is noted."""
        self.late, opened = candidate, None
        try:
            opened = self._opened(candidate, open_program, stack)
        except (
            tf.errors.InvalidArgumentError,
            tf.errors.UnimplementedError,
            tf.errors.InternalError,
        ) as error:
            self._note(candidate, message=error.message.splitlines()[0])
        else:
            kernels = int(self.starts_kernel[candidate.cluster_of_op != NO_CLUSTER].sum())
            self.compile_s_per_kernel = opened.compile_s / max(kernels, 1)
        self.late = None
        return opened

    def _turns(self, racers: Sequence[_Opened], rounds: int, warmups: int = 1) -> list[list[float]]:
        steps = [racer.program.step for racer in racers]
        return race_steps(steps, rounds, warmups, 1.0, clock=self.clock, limit=self.limit)

    def _refined(
        self, candidate: _Candidate, op_ns: Mapping[str, float], fused_ns: Mapping[str, float]
    ) -> tuple[_Candidate, float]:
        """The candidate without the clusters that lose, large ones cut in two, and the share to hope for.

        Hoped for is that one half of a large one takes nothing, and the other what its ops do.
        """
        names = self.item.index.names
        labels: list[object] = [None] * len(names)
        saved_ns = 0.0
        for cluster in range(int(candidate.cluster_of_op.max()) + 1):
            ops = np.flatnonzero(candidate.cluster_of_op == cluster)
            took_ns = fused_ns.get(f"{PREFIX}_{cluster}", 0.0)
            without_ns = sum(op_ns.get(names[op], 0.0) for op in ops)
            is_bad = took_ns > without_ns
            is_cut = is_bad and self.starts_kernel[ops].sum() >= _BISECTED
            saved_ns += is_bad * (took_ns - without_ns * (0.5 if is_cut else 1.0))
            if is_cut or not is_bad:
                for position, op in enumerate(ops.tolist()):
                    labels[op] = (cluster, is_cut and 2 * position >= len(ops))
        clusters = convex_clusters(self.item, labels, self.device_of_op)
        hoped = (sum(fused_ns.values()) - saved_ns) / max(sum(op_ns.values()), 1.0)
        refinements = candidate.refinements + 1
        title = f"{candidate.rule}, refined {refinements} times"
        return _Candidate(candidate.rule, title, clusters, refinements), hoped

    def found(self) -> Fusing:
        """The best clusters beside the plan without, also where the workers were ended in the middle."""
        assert self.best is not None  # a step was timed
        best, samples = self.best
        if self.late is not None:
            self._note(self.late, message=f"not compiled in the {self.budget_s:.0f} s that there were")
        times_s, spreads_s = race_times_s(samples)
        is_faster = best.candidate is not None and clearly_slower(samples[0], samples[-1])
        clusters = None if best.candidate is None or not is_faster else best.candidate.cluster_of_op
        return Fusing(
            placement=dataclasses.replace(self.plain, cluster_of_op=clusters),
            name=UNFUSED if best.candidate is None else best.candidate.title,
            fused_s=times_s[-1],
            unfused_s=times_s[0],
            fused_spread_s=spreads_s[-1],
            unfused_spread_s=spreads_s[0],
            compile_s=0.0 if best.candidate is None else best.compile_s,
            is_faster=is_faster,
            tried=tuple(self.tried),
        )


def _traced_ns(opened: _Opened) -> dict[str, float]:
    """Node -> nanoseconds in a step, the median of a few."""
    times_of_node: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(_TRACES):
        for device in opened.program.traced_step().step_stats.dev_stats:
            for node in device.node_stats:
                times_of_node[node.node_name].append(node.op_end_rel_nanos - node.op_start_rel_nanos)
    return {name: float(np.median(times)) for name, times in times_of_node.items()}
