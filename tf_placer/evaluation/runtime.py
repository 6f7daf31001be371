"""Runtime evaluator: placements timed on the real TensorFlow runtime, with every failure as a status."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import in_unit
from tf_placer.evaluation.attempts import (
    Attempt,
    OpenProgram,
    time_program,
    try_on,
    whole_machine,
)
from tf_placer.evaluation.simulated import UNKNOWN_BYTES, Measurement, Status, TraceFailed
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import check_is_of
from tf_placer.problem.placement import Decisions, Placement, decisions_of
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.audit import (
    Audit,
    AuditError,
    SameValues,
    Values,
    audit,
    difference,
    executed_order,
    step_values,
    written_order,
)
from tf_placer.runtime.graph_program import (
    EMPTY_PROGRAM,
    GraphProgram,
    LoadedProgram,
    build_program,
    open_program,
    process_session_config,
    session_config,
)
from tf_placer.runtime.timing import Limit, RuntimeConfig, race_steps, reported_s
from tf_placer.workers.fork_server import environment
from tf_placer.workers.local_workers import LocalWorkers, Workers, workers_of

_Value = TypeVar("_Value")
# How far sums in another order may be apart, as a share of the largest number: a wrong divisor is off by more. Where
# something is computed in half precision, its few bits tell no less.
_APART, _APART_IN_HALF = 1e-4, 5e-2


class RaceFailed(RuntimeError):
    """A placement in a race did not run to the end."""


class UnplacedFailed(RuntimeError):
    """A program does not run without a placement."""


class RuntimeEvaluator(contextlib.AbstractContextManager["RuntimeEvaluator"]):
    """Runs placements on worker processes and times one step of each.

        with RuntimeEvaluator(item, problem) as evaluator:
            measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]

    Placed graphs run in the workers only, so that a placement that brings TensorFlow down ends as a status;
    the next one gets fresh workers. The workers start with the first evaluation and stay warm.

    A placement must keep within ``Device.memory_bytes``: its values are compared with it before they are sent, and the
    memory of pinned CPU workers is watched while it runs. One that takes more is ended, status OUT_OF_MEMORY.
    On GPUs and on servers that run elsewhere, it is TensorFlow that notices.
    """

    limit: Limit
    """The end of timing and racing, for all forms of the program."""

    def __init__(
        self,
        item: Item,
        problem: Problem,
        config: RuntimeConfig = RuntimeConfig(),
        as_it_is: Item | None = None,
    ) -> None:
        """Checks that the problem is about this item and this machine; starts nothing.

        ``as_it_is`` is what ``race_unplaced`` and ``compare_values`` compare with, where the program is another form of
        it: its batch in parts.

        Raises:
          InputError: the cluster is not live, the problem was built from another graph, or the program needs this
            process (``Item.why_not_standalone``).
        """
        arguments.instance_of("config", config, RuntimeConfig, "give a RuntimeConfig")
        check_can_be_timed(item, problem)
        if as_it_is is not None:
            arguments.instance_of(
                "as_it_is", as_it_is, Item, "give the program before its batch was put in parts"
            )
        self._item, self._as_it_is = item, item if as_it_is is None else as_it_is
        self.problem, self._config = problem, config
        self._workers = workers_of(problem.cluster, config.inter_op_threads)
        self._whole_machine: LocalWorkers | None = None
        self.limit = Limit()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start(self, beside_unplaced: bool = False) -> None:
        """Starts the workers now rather than with the first evaluation.

        With ``beside_unplaced`` also the process of ``race_unplaced``, at the same time: each takes seconds to start.

        Raises:
          WorkerError: one of them cannot be started.
        """
        starts = [self._workers.start]
        if arguments.truth("beside_unplaced", beside_unplaced):
            self._whole_machine = self._whole_machine or whole_machine(self.problem.cluster)
            starts.append(self._whole_machine.start)
        with concurrent.futures.ThreadPoolExecutor(len(starts)) as pool:
            for started in [pool.submit(start) for start in starts]:
                started.result()

    def of_form(self, item: Item, problem: Problem) -> RuntimeEvaluator:
        """An evaluator of another form of the program, its batch in parts, on the same workers.

        The function as it is, which ``race_unplaced`` and ``compare_values`` compare with, stays that of this one.

        Raises:
          InputError: as the constructor, or the cluster is another.
        """
        check_can_be_timed(item, problem)
        clusters = (self.problem.cluster, problem.cluster)
        if len({tuple(device.name for device in cluster.devices) for cluster in clusters}) > 1:
            raise InputError(
                f"problem {problem.name!r} is on cluster {problem.cluster.name!r} and these workers are "
                f"{self.problem.cluster.name!r}; build it on the same cluster"
            )
        evaluator = copy.copy(self)
        evaluator._item, evaluator.problem = item, problem
        return evaluator

    def close(self) -> None:
        """Ends the workers; an evaluation after that starts new ones."""
        self._workers.close()
        if self._whole_machine is not None:
            self._whole_machine.close()

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on the graph, the devices and how a step is timed, and on no estimate."""
        return {
            "evaluator": "runtime",
            "graph": self.problem.fingerprint,
            "cluster": self.problem.cluster.fingerprint(),
            "config": dataclasses.asdict(self._config),
        }

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the live workers, empty before the first evaluation."""
        return self._workers.pids

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Times one step of each placement, one after the other.

        Args:
          device_of_unit: [B, U] integer device positions in ``problem.cluster``, or all that B plans decide.

        Returns:
          Median times; ``peak_bytes`` of pinned CPU workers, somewhat above what the program takes (by how
          much: ``WorkerMemory``), also where it took too much.

        Raises:
          InputError: wrong shape, or clusters that are not legal. A device that is not there or not allowed is status
            ILLEGAL.
          WorkerError: the workers cannot be started at all.
        """
        plans = decisions_of(device_of_unit, self.problem)
        attempts = [self._evaluate_one(plans.row(i)) for i in range(len(plans))]
        step_s = [attempt.value for attempt in attempts]
        times_s = [reported_s(steps, self._config) if steps else (math.nan, math.nan) for steps in step_s]
        names = [device.name for device in self.problem.cluster.devices]
        rows = [[attempt.peak_bytes.get(name, UNKNOWN_BYTES) for name in names] for attempt in attempts]
        return Measurement(
            runtime_s=np.array([runtime_s for runtime_s, _ in times_s], np.float64),
            peak_bytes=np.array(rows, np.int64) if any(attempt.peak_bytes for attempt in attempts) else None,
            status=np.array([attempt.status for attempt in attempts], np.int32),
            messages=tuple(attempt.message for attempt in attempts),
            spread_s=np.array([spread_s for _, spread_s in times_s], np.float64),
        )

    def _evaluate_one(self, plan: Decisions) -> Attempt[list[float]]:
        try:
            Placement.from_decisions(self.problem, plan)
        except InputError as error:
            return Attempt(Status.ILLEGAL, str(error))
        program = self.program(plan)
        resident = program.resident_bytes()
        for device in self.problem.cluster.devices:
            if resident.get(device.name, 0) > device.memory_bytes:
                return Attempt(
                    Status.OUT_OF_MEMORY,
                    f"{device.name} has {in_unit(device.memory_bytes, 'MB')}, and the variables and inputs there take "
                    f"{in_unit(resident[device.name], 'MB')}",
                )
        timed = functools.partial(time_program, self._workers, program, self._config, self.limit)
        were_warm = bool(self.worker_pids)
        attempt = timed()
        if attempt.status == Status.OUT_OF_MEMORY and were_warm:
            # What earlier programs left may have counted; now the workers are fresh.
            attempt = timed()
        return attempt

    def race(
        self,
        device_of_unit: np.ndarray | Decisions,
        rounds: int = 20,
        confidence: float = 0.99,
        beside: Sequence[GraphProgram] = (),
    ) -> list[list[float]]:
        """Times placements in turn, step by step (``race_steps``): for a few that are close.

        All of them are loaded at once, so their variables must fit together.

        Args:
          device_of_unit: [B, U], or all that B plans decide; what ``evaluate`` has found OK.
          rounds: timed steps of each placement that stays in the race.
          confidence: that one which drops out is slower than the leader; 1 keeps all to the end.
          beside: other programs for these workers, which take turns with them.

        Returns:
          Step times of each, in seconds, those of ``beside`` last; fewer for one that dropped out.

        Raises:
          InputError: an argument of the wrong type, shape or range, or a placement that is not legal.
          RaceFailed: one of them did not run to the end.
        """
        programs = self._racers(device_of_unit, rounds, confidence, beside, is_call=False)
        return self._race(programs, rounds, confidence).value_or(RaceFailed)

    def race_unplaced(
        self,
        device_of_unit: np.ndarray | Decisions,
        rounds: int = 20,
        confidence: float = 0.99,
        beside: Sequence[GraphProgram] = (),
    ) -> list[list[float]]:
        """Times calls of placements in turn with the unplaced program, which has one process and all cores.

        All have this process's graph optimizations, and the unplaced program as many threads. A call of a placement
        sends the inputs to the workers and waits for the outputs, as it will when this process calls it. An unplaced
        function has both in its own process; what asking another one costs is measured turn by turn and taken off.

        Arguments are those of ``race``; ``beside`` are calls (``program``).

        Returns:
          Times of each placement's turns, of those of ``beside``, and last of the unplaced program's, in seconds.

        Raises:
          InputError: an argument of the wrong type, shape or range, or a placement that is not legal.
          UnplacedFailed: the program does not run as it is.
          RaceFailed: a placement did not run to the end.
        """
        programs = self._racers(device_of_unit, rounds, confidence, beside, is_call=True)
        unplaced = build_program(self._as_it_is, self._as_it_is.graph_def)
        deadline_s = self._config.deadline_s

        def run(target: str) -> Attempt[list[list[float]]]:
            with (
                open_program(target, unplaced, deadline_s, process_session_config) as loaded,
                open_program(target, EMPTY_PROGRAM, deadline_s) as empty,
            ):
                loaded.step()  # what fails here is not a placement's fault
                return self._race(programs, rounds, confidence, (loaded.step, empty.step))

        self._whole_machine = self._whole_machine or whole_machine(self.problem.cluster)
        with contextlib.closing(self._whole_machine) as machine:
            attempt = try_on(machine, (len(programs) + 2) * deadline_s, run)
        return attempt.value_or(UnplacedFailed).value_or(RaceFailed)

    def _racers(
        self,
        device_of_unit: np.ndarray | Decisions,
        rounds: int,
        confidence: float,
        beside: Sequence[GraphProgram],
        is_call: bool,
    ) -> list[GraphProgram]:
        arguments.whole_number("rounds", rounds, least=1)
        arguments.number("confidence", confidence, above=0, most=1)
        extra = arguments.items_of(
            "beside", beside, GraphProgram, "give what RuntimeEvaluator.program returns"
        )
        plans = decisions_of(device_of_unit, self.problem)
        programs = [*(self.program(plans.row(i), is_call) for i in range(len(plans))), *extra]
        if not programs:
            raise InputError("device_of_unit has no placement; give at least one to race")
        return programs

    def _race(
        self,
        programs: Sequence[GraphProgram],
        rounds: int,
        confidence: float,
        unplaced: tuple[Callable[[], None], Callable[[], None]] | None = None,
    ) -> Attempt[list[list[float]]]:
        """Step times of programs on the workers, and of the unplaced one, given by its step and an empty one."""
        config_of = process_session_config if unplaced else session_config

        def run(target: str) -> list[list[float]]:
            with contextlib.ExitStack() as stack:
                steps, empty_of = list[Callable[[], None]](), {}
                for program in programs:
                    loaded = open_program(target, program, self._config.deadline_s, config_of)
                    steps.append(stack.enter_context(loaded).step)
                if unplaced:
                    steps.append(unplaced[0])
                    empty_of[len(programs)] = unplaced[1]
                warmup = self._config.warmup_steps
                return race_steps(steps, rounds, warmup, confidence, limit=self.limit, empty_of=empty_of)

        return try_on(self._workers, self._config.deadline_s * (len(programs) + bool(unplaced)), run)

    def try_programs(self, function: Callable[[OpenProgram], _Value], deadline_s: float) -> Attempt[_Value]:
        """Calls ``function`` with a loader of programs on the workers, to time several that depend on each other.

        Raises:
          WorkerError: the workers cannot be started at all.
        """
        arguments.function("function", function, "give what is to be called with what opens programs")
        deadline_s = arguments.number("deadline_s", deadline_s, above=0, finite=True)
        return try_on(
            self._workers,
            deadline_s,
            lambda target: function(lambda program: open_program(target, program, deadline_s)),
        )

    def audit(self, device_of_unit: np.ndarray | Decisions) -> Audit:
        """Runs one step of one placement; compares devices and order of the ops that ran with the plan.

        Raises:
          InputError: it is not legal.
          AuditError: the placement does not run.
        """
        program, placement = self.program(device_of_unit), self._placement(device_of_unit)
        pairs: list[tuple[str, str]] = []
        if placement.priority_of_op is not None:
            # Clusters are calls in both graphs, so an edge to or from one is seen, too.
            unordered = rewrite(self._item, dataclasses.replace(placement, priority_of_op=None))
            pairs = written_order(unordered, program.graph_def)
        trace = self._on_workers(program, LoadedProgram.traced_step, AuditError)
        names = {node.name for node in program.graph_def.node}
        order = executed_order(pairs, trace, names) if pairs else None
        return dataclasses.replace(audit(program, list(trace.partition_graphs)), order=order)

    def compare_values(self, device_of_unit: np.ndarray | Decisions) -> SameValues:
        """Runs one step of a placement and of the unplaced program, from the same values, and compares the results.

        Once with Grappler and oneDNN off, on workers of their own, and once as this process has them. As it is, the
        program runs on the first worker, with one thread for each op as the workers have. Of a program whose batch is
        in parts, or that has clusters, sums are made in another order, so its numbers may differ by that much.

        Raises:
          InputError: the placement is not legal, the devices are servers elsewhere, or the step gives nothing back.
          AuditError: one of the two does not run.
        """
        placement, deadline_s = self._placement(device_of_unit), self._config.deadline_s
        if self.problem.cluster.kind == "remote":
            raise InputError(
                "values are compared on workers that this process starts, since servers elsewhere have oneDNN as they "
                "were started; compare them with cluster='local'"
            )
        unplaced = (self._as_it_is, self._as_it_is.graph_def)
        placed = (self._item, rewrite(self._item, placement))

        def values_of(
            workers: Workers,
            program: tuple[Item, tf.compat.v1.GraphDef],
            config_of: Callable[[float], tf.compat.v1.ConfigProto],
        ) -> Values:
            attempt = try_on(
                workers, deadline_s, lambda target: step_values(target, *program, deadline_s, config_of)
            )
            return attempt.value_or(AuditError, "a step does not run: ")

        with (
            contextlib.closing(workers_of(self.problem.cluster, self._config.inter_op_threads)) as exact,
            environment("TF_ENABLE_ONEDNN_OPTS", "0"),  # it fuses ops and reorders sums next to others
        ):
            before, again, after = (
                values_of(exact, program, session_config) for program in (unplaced, unplaced, placed)
            )
        before_as_run, after_as_run = (
            values_of(self._workers, program, process_session_config) for program in (unplaced, placed)
        )
        # In parts an output may come from an op of another name.
        after, after_as_run = (
            dict(zip(before, values.values(), strict=True)) for values in (after, after_as_run)
        )
        tolerance, splitting = None, self._item.splitting
        if splitting is not None and splitting.batch_statistics == "part":
            tolerance = math.inf
        elif (splitting and splitting.parts > 1) or placement.cluster_of_op is not None:
            types = {spec.dtype for outputs in self._item.outputs for spec in outputs}
            tolerance = _APART_IN_HALF if types & {tf.float16, tf.bfloat16} else _APART
        return SameValues(
            difference(before, again),
            difference(before, after),
            difference(before_as_run, after_as_run),
            tolerance,
        )

    def traced_step(self, device_of_unit: np.ndarray | Decisions) -> tf.compat.v1.RunMetadata:
        """Runs one placement through its warm-up, then one step that the runtime traces.

        Raises:
          InputError: it is not legal.
          TraceFailed: the placement does not run.
        """

        def run(loaded: LoadedProgram) -> tf.compat.v1.RunMetadata:
            for _ in range(self._config.warmup_steps):
                loaded.step()
            return loaded.traced_step()

        return self._on_workers(self.program(device_of_unit), run, TraceFailed)

    def _on_workers(
        self, program: GraphProgram, function: Callable[[LoadedProgram], _Value], error: type[Exception]
    ) -> _Value:
        """Calls ``function`` with a program on the workers; raises ``error`` where that does not run."""

        def run(target: str) -> _Value:
            with open_program(target, program, self._config.deadline_s) as loaded:
                return function(loaded)

        attempt = try_on(self._workers, self._config.deadline_s, run)
        return attempt.value_or(error, "the placement does not run: ")

    def program(self, device_of_unit: np.ndarray | Decisions, is_call: bool = False) -> GraphProgram:
        """Program that runs on the workers for a placement.

        ``device_of_unit`` is [U], or all that one plan decides; ``is_call`` as ``build_program`` takes it.

        Raises:
          InputError: it is not legal.
        """
        is_call = arguments.truth("is_call", is_call)
        return build_program(self._item, rewrite(self._item, self._placement(device_of_unit)), is_call)

    def _placement(self, device_of_unit: np.ndarray | Decisions) -> Placement:
        if isinstance(device_of_unit, Decisions):
            return Placement.from_decisions(self.problem, device_of_unit)
        return Placement(self.problem, device_of_unit)


def check_can_be_timed(item: Item, problem: Problem) -> None:
    """Raises InputError where a problem is of another program, or no other process can run that."""
    check_is_of(item, problem)
    if not item.runs_standalone:
        raise InputError(
            f"{item.name!r} cannot run on workers, so it cannot be timed: {item.why_not_standalone}"
        )
