"""One method's best placement, simulated and, where there are devices to ask, measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import rich.console
import tensorflow as tf

from tf_placer.command_line.reporting.traced import traced_step
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.runtime.race import race_spreads_s, race_times_s
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.search.ctrl_c import patient
from tf_placer.search.live import MEASURE, RACE
from tf_placer.search.live_phases import START
from tf_placer.search.objective import Objective
from tf_placer.search.progress import ConsoleProgress
from tf_placer.search.result import SearchResult
from tf_placer.search.search import NothingFits, search
from tf_placer.waiting.wait import Wait
from tf_placer.workers.local_workers import WorkerError

NOT_RUN = "NOT_RUN"
GIVEN = "plan"
"""Called so in place of a method: a plan that was given, and not searched."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What a method came up with.

    Attributes:
      method: its name.
      result: its search, None when nothing it tried fits in memory.
      measured_s: step time on the runtime, None when not measured or when it failed there.
      status: how it fared last: in the simulator, or on the runtime once measured; ILLEGAL without result where the
        method cannot place this problem.
      message: one line about a failure, "" where there is nothing to say.
      traced: a step on the runtime, of the one whose plan is written.
      spread_s: lower and upper quartile of its times in a race; None where there was none.
    """

    method: str
    result: SearchResult | None
    measured_s: float | None = None
    status: Status = Status.OK
    message: str = ""
    traced: tf.compat.v1.RunMetadata | None = None
    spread_s: tuple[float, float] | None = None

    @property
    def simulated_s(self) -> float | None:
        """Step time in the simulator, None when nothing fits."""
        return self.result.runtime_s if self.result else None

    @property
    def peak_bytes(self) -> int | None:
        """Most memory in use on any one device in the simulator, None when nothing fits."""
        return max(self.result.peak_bytes.values(), default=0) if self.result else None

    @property
    def status_name(self) -> str:
        """The status, or ``NOT_RUN`` of a method that could not even begin; ``message`` says why."""
        is_told = self.result is not None or self.status == Status.OUT_OF_MEMORY
        return self.status.name if is_told else NOT_RUN

    @property
    def step_s(self) -> float | None:
        """The word that counts: measured where something was, else simulated."""
        if self.status != Status.OK:
            return None
        return self.simulated_s if self.measured_s is None else self.measured_s


def find_candidate(
    problem: Problem,
    method: str,
    budget: Budget,
    seed: int,
    console: rich.console.Console,
    config: object | None = None,
    objective: Objective | None = None,
) -> Candidate:
    """Searches with one method; a method that finds nothing that fits is a candidate without result.

    Args:
      problem: what to place.
      method: its name.
      budget: of the search.
      seed: of the search.
      console: is shown what goes on.
      config: settings of the method, see ``search``.
      objective: what is sought; None for the shortest step.

    Raises:
      InputError: no method has this name, or a setting is not possible.
    """
    methods.find(method)
    sought = objective or Objective()
    progress = ConsoleProgress(f"{method} on {problem.cluster.name}", budget, console)
    try:
        result = search(
            problem,
            method,
            budget.seconds,
            budget.evaluations,
            seed,
            progress,
            config=config,
            objective=sought.name,
            slow_down=sought.slow_down,
        )
    except NothingFits as error:
        return Candidate(method, None, status=Status.OUT_OF_MEMORY, message=str(error))
    return Candidate(method, result)


def try_candidate(
    problem: Problem,
    method: str,
    budget: Budget,
    seed: int,
    console: rich.console.Console,
    config: object | None = None,
) -> Candidate:
    """As ``find_candidate``, but a method that cannot place this problem, or wants a library, ends nothing.

    Raises:
      InputError: no method has this name.
    """
    methods.find(method)
    try:
        return find_candidate(problem, method, budget, seed, console, config)
    except InputError as error:
        return Candidate(method, None, status=Status.ILLEGAL, message=str(error))


def measure_candidates(
    item: Item,
    problem: Problem,
    candidates: Sequence[Candidate],
    console: rich.console.Console,
    written: Callable[[Sequence[Candidate]], Candidate | None],
    wait: Wait,
) -> list[Candidate]:
    """Times every candidate that has a placement on the live devices of the problem's cluster.

    Each runs by itself first, which shows who runs at all. Those that do then race, step by step in turn, and the
    race's times count: what the machine does meanwhile it does to all.

    A search is not thrown away because its result cannot be timed: after Ctrl-C, or when the workers do not
    start or no longer answer, no candidate counts as measured, and each says why.

    Args:
      item: the program.
      problem: the program on the cluster.
      candidates: what to time.
      console: is shown what goes on.
      written: of the candidates that were timed, the one whose plan is written: a step of it is traced.
    """
    try:
        with patient(), RuntimeEvaluator(item, problem) as evaluator:
            with wait.phase(START):
                evaluator.start()
            with wait.phase(MEASURE):
                alone = [_measured(candidate, evaluator) for candidate in candidates]
            with wait.phase(RACE):
                raced = _raced(alone, evaluator)
                chosen = written(raced)
                return [with_trace(one, evaluator, console) if one is chosen else one for one in raced]
    except KeyboardInterrupt:
        why = "not measured: interrupted"
    except (WorkerError, InputError) as error:
        why = f"not measured: {error}"
    return [dataclasses.replace(candidate, message=candidate.message or why) for candidate in candidates]


def with_trace(candidate: Candidate, evaluator: RuntimeEvaluator, console: rich.console.Console) -> Candidate:
    """The candidate with a traced step; as it is where it did not run, or the step could not be traced."""
    if candidate.result is None or candidate.measured_s is None or candidate.status != Status.OK:
        return candidate
    return dataclasses.replace(candidate, traced=traced_step(candidate.result.placement, evaluator, console))


def _raced(candidates: list[Candidate], evaluator: RuntimeEvaluator) -> list[Candidate]:
    """The candidates with times of a race between those that run; as they are where fewer than two do."""
    racing = [i for i, candidate in enumerate(candidates) if candidate.measured_s is not None]
    plans = [c.result.placement.decisions for c in (candidates[i] for i in racing) if c.result is not None]
    if len(racing) < 2:
        return candidates
    raced = list(candidates)
    try:
        samples = evaluator.race(Decisions.joined(plans).plain)
    except RaceFailed as error:
        why = f"timed by itself, because the race failed ({error})"
        for i in racing:
            raced[i] = dataclasses.replace(raced[i], message=raced[i].message or why)
        return raced
    for i, measured_s, spread_s in zip(racing, race_times_s(samples), race_spreads_s(samples), strict=True):
        raced[i] = dataclasses.replace(raced[i], measured_s=measured_s, spread_s=spread_s)
    return raced


def _measured(candidate: Candidate, evaluator: RuntimeEvaluator) -> Candidate:
    if candidate.result is None:
        return candidate
    times = evaluator.evaluate(candidate.result.placement.decisions.plain)
    status = Status(int(times.status[0]))
    measured_s = float(times.runtime_s[0]) if status == Status.OK else None
    return dataclasses.replace(candidate, measured_s=measured_s, status=status, message=times.messages[0])
