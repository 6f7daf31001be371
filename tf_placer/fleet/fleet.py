"""Driver of a fleet, which repeats lost trials and counts one answer to each, and evaluators of placements on it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, told
from tf_placer.base.quantities import milliseconds
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.evaluation.runtime import RuntimeEvaluator, check_can_be_timed
from tf_placer.evaluation.simulated import Measurement, SimulatedEvaluator, Status
from tf_placer.fleet.machine import Program, Reply, Trial, trial_id
from tf_placer.graph.item import Item
from tf_placer.problem.placement import Decisions, decisions_of
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.workers.local_workers import UnreachableServer, WorkerError

_TICK_S = 0.2
_AGAIN_S = 0.5  # until a machine that failed is asked again


class UnreachableFleet(UnreachableServer):
    """No machine of a fleet can be reached."""


class FleetLost(WorkerError):
    """All machines have become unable to measure."""


@dataclasses.dataclass(frozen=True)
class FleetConfig:
    """Settings of a fleet."""

    max_restarts: int = 100  # of each actor, by Ray
    attempts: int = 3  # times that a lost trial is sent before its plan is CRASHED
    start_s: float = 300.0  # most seconds until the first machine answers
    reply_s: float = 1800.0  # a later answer counts as lost: the trial is sent again, and its actor restarted
    failures: int = 20  # in a row, after which a machine is left out


@dataclasses.dataclass
class Counts:
    """Counts of calls since a fleet was opened."""

    sent: int = 0
    counted: int = 0  # first answers
    doubles: int = 0  # second answers
    lost: int = 0


@dataclasses.dataclass(eq=False)
class _Machine:
    """State of a machine in the driver."""

    name: str  # for messages
    handle: Any  # its actor
    host: str = ""  # from its first answer
    is_ready: bool = False  # it has answered, and no call is under way
    failures: int = 0  # in a row
    why_lost: str = ""  # one line; "" while it is used
    not_before_s: float = 0.0  # time of the next call
    reference_s: dict[str, float] = dataclasses.field(default_factory=dict)  # latest baseline of each program


@dataclasses.dataclass(eq=False)
class _Call:
    """A call under way."""

    machine: _Machine
    trial: Trial | None  # None for ``hello``
    since_s: float
    is_overdue: bool = False


class Fleet(contextlib.AbstractContextManager["Fleet"]):
    """The machines, and the trials under way.

        with open_fleet(address, cluster) as fleet:
            for reply in fleet.measure(trials, program):
                ...

    A call is lost when its actor dies or no answer comes in time. Its trial is sent again, to any free machine. So a
    trial may be measured twice, and the first answer counts.
    """

    def __init__(
        self,
        ray: Any,
        handles: Mapping[str, Any],
        expected: Mapping[str, Any],
        config: FleetConfig = FleetConfig(),
        on_close: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Takes over actors, name -> actor of a ``Machine``; ``start`` identifies them.

        ``ray`` is the module, or an object with its ``wait``, ``get``, ``put``, ``kill`` and ``exceptions``;
        ``expected`` the required ``software`` and ``machines`` in the answer to ``hello``; ``on_close`` leaves the
        cluster.
        """
        self._ray, self._expected, self.config = ray, expected, config
        self._machines = [_Machine(name, handle) for name, handle in handles.items()]
        self._on_close, self._clock, self._sleep = on_close, clock, sleep
        self._calls: dict[Any, _Call] = {}
        self._programs: dict[str, Any] = {}  # digest -> where the object store has it
        self.counts = Counts()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def machines(self) -> str:
        """Class of the machines."""
        return str(self._expected["machines"])

    @property
    def actors(self) -> int:
        """Number of actors in use."""
        return sum(bool(machine.host) and not machine.why_lost for machine in self._machines)

    @property
    def hosts(self) -> int:
        """Number of hosts of these actors."""
        return len({machine.host for machine in self._machines if machine.host and not machine.why_lost})

    def baselines_s(self, program: str) -> list[float]:
        """Latest baseline of each actor that has measured a program, given by its digest."""
        return [machine.reference_s[program] for machine in self._machines if program in machine.reference_s]

    def start(self) -> None:
        """Waits until every machine has identified itself or is lost.

        Raises:
          UnreachableFleet: none answers.
          InputError: one has another version of tf_placer or TensorFlow, or other devices.
        """
        until_s = self._clock() + self.config.start_s
        while self._clock() < until_s and not all(m.is_ready or m.why_lost for m in self._machines):
            self._greet()
            for call, answer in self._answers():
                refusal = self._met(call.machine, answer)
                if refusal:
                    raise InputError(refusal)
        if not self.actors:
            why = next(
                (machine.why_lost for machine in self._machines if machine.why_lost), "none has answered"
            )
            raise UnreachableFleet(
                f"no machine of the fleet can be used within {self.config.start_s:g} s ({why}); look whether it runs "
                "and tf_placer is installed there (docs/fleet.md)"
            )

    def close(self) -> None:
        """Ends the actors and leaves the cluster. May be called twice."""
        machines, self._machines = self._machines, []
        for machine in machines:
            self._ray.kill(machine.handle)
        self._calls.clear()
        self._on_close()
        self._on_close = lambda: None

    def measure(self, trials: Sequence[Trial], program: Program) -> Iterator[Reply]:
        """Measures trials of a program on all machines; yields one reply for each as soon as possible.

        Raises FleetLost when no machine can measure any more.
        """
        if program.digest not in self._programs:
            self._programs[program.digest] = self._ray.put(program)
        missing = {trial.id: trial for trial in trials}
        waiting, sent = collections.deque(trials), collections.Counter[str]()
        while missing:
            self._greet()
            for machine in self._machines:
                while machine.is_ready and waiting:
                    trial = waiting.popleft()
                    if trial.id in missing:
                        sent[trial.id] += 1
                        self.counts.sent += 1
                        call = machine.handle.measure.remote(trial, self._programs[trial.program])
                        self._track(machine, trial, call)
            if all(machine.why_lost for machine in self._machines):
                raise FleetLost(
                    f"no machine of the fleet can measure any more: {self._machines[-1].why_lost}"
                )
            for trial, reply in list(self._outcomes()):
                if trial.id not in missing:
                    self.counts.doubles += reply is not None
                elif reply is None and sent[trial.id] < self.config.attempts:
                    waiting.append(trial)
                else:
                    del missing[trial.id]
                    self.counts.counted += 1
                    message = f"its machine died or did not answer, {self.config.attempts} times in a row"
                    nan, crashed = np.full(1, np.nan), np.array([Status.CRASHED], np.int32)
                    yield reply or Reply(trial.id, Measurement(nan, None, crashed, (message,), nan))

    def _greet(self) -> None:
        """Calls ``hello`` of new and failed machines: an actor that Ray restarts may be on another host."""
        busy = {call.machine for call in self._calls.values()}
        for machine in self._machines:
            is_due = self._clock() >= machine.not_before_s
            if not machine.is_ready and not machine.why_lost and machine not in busy and is_due:
                self._track(machine, None, machine.handle.hello.remote())

    def _track(self, machine: _Machine, trial: Trial | None, reference: Any) -> None:
        machine.is_ready = False
        self._calls[reference] = _Call(machine, trial, self._clock())

    def _outcomes(self) -> Iterator[tuple[Trial, Reply | None]]:
        """Trials that have ended, with their replies, or None where lost. Answers to ``hello`` are noted."""
        for call in self._calls.values():
            is_late = self._clock() - call.since_s > self.config.reply_s
            if is_late and not call.is_overdue and call.trial is not None:
                call.is_overdue = True
                self.counts.lost += 1
                self._ray.kill(call.machine.handle, no_restart=False)
                yield call.trial, None
        for call, answer in self._answers():
            machine = call.machine
            if call.trial is None:
                machine.why_lost = self._met(machine, answer)
            elif isinstance(answer, Reply) and not answer.error:
                machine.is_ready, machine.failures = True, 0
                machine.reference_s[call.trial.program] = answer.reference_s
                yield call.trial, answer
            else:
                self._failed(machine, answer.error if isinstance(answer, Reply) else told(answer))
                if not call.is_overdue:  # else it was counted as lost before
                    self.counts.lost += 1
                    yield call.trial, None

    def _answers(self) -> Iterator[tuple[_Call, Any]]:
        """Calls that have ended, with their results; a Ray error where the actor or its host is gone."""
        if not self._calls:
            self._sleep(_TICK_S)
            return
        ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=_TICK_S)
        errors = self._ray.exceptions
        for reference in ready:
            call = self._calls.pop(reference)
            try:
                answer = self._ray.get(reference)
            except errors.RayTaskError:
                raise  # a fault of this package
            except errors.RayError as error:
                answer = error
            yield call, answer

    def _met(self, machine: _Machine, answer: Any) -> str:
        """Notes an answer to ``hello``; the reason why the machine cannot be used, or ""."""
        if not isinstance(answer, dict):
            self._failed(machine, told(answer))
            return machine.why_lost
        name = f"machine {answer['host']} of the fleet"
        if answer["software"] != self._expected["software"]:
            theirs, ours = (
                ", ".join(f"{package} {version}" for package, version in versions.items())
                for versions in (answer["software"], self._expected["software"])
            )
            return f"{name} has {theirs}, and this one {ours}; install the same version there"
        if answer["error"]:
            return f"{name} has no devices to measure on: {answer['error']}"
        if answer["machines"] != self._expected["machines"]:
            return (
                f"{name} has other devices ({answer['machines']}) than the cluster ({self._expected['machines']}); "
                "measure on machines of one kind"
            )
        machine.host, machine.is_ready = str(answer["host"]), True
        return ""

    def _failed(self, machine: _Machine, why: str) -> None:
        machine.failures += 1
        machine.not_before_s = self._clock() + _AGAIN_S
        if machine.failures >= self.config.failures:
            machine.why_lost = f"{machine.name} failed {machine.failures} times in a row, at last: {why}"


class FleetEvaluator:
    """Times placements on the machines of a fleet, with the interface of ``RuntimeEvaluator``.

        with open_fleet(address, problem.cluster) as fleet:
            evaluator = FleetEvaluator(item, problem, fleet)
            measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]

    Machines differ, and so does one machine over the hours. So each times a reference plan now and then, and the time
    of a plan is its ratio to the reference on the same machine, times ``level_s``: the seconds of the reference on the
    first machine that measured it, or those given to ``relative_to``.
    """

    def __init__(
        self,
        item: Item,
        problem: Problem,
        fleet: Fleet,
        config: RuntimeConfig = RuntimeConfig(),
        reference: Decisions | None = None,
        otherwise: Decisions | None = None,
    ) -> None:
        """Packs the program; nothing is sent. The fleet is the caller's to close.

        The reference plan is ``reference``, else the first single device that holds the program, else ``otherwise``.

        Raises:
          InputError: as ``RuntimeEvaluator``; the program has captured something of this process; there is no
            reference plan.
        """
        check_can_be_timed(item, problem)
        if reference is None:
            rows = np.stack([problem.everything_on(d) for d in range(problem.num_devices)])
            runs = np.flatnonzero(SimulatedEvaluator(problem).evaluate(rows).status == Status.OK)
            reference = Decisions(rows[runs[:1]]) if len(runs) else otherwise
        if reference is None:
            raise InputError(
                f"no single device holds {problem.name!r}, so times on a fleet have nothing to be relative to; give "
                "reference=, a plan that fits"
            )
        self.problem, self.fleet, self.reference = problem, fleet, reference.row(0)
        self._config = config
        self.program = Program.packed(item, problem, self.reference, config)
        self.level_s: float | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Its answers depend on the graph, the class of machines, the reference plan and the timing of a step."""
        return {
            "evaluator": "fleet",
            "graph": self.problem.fingerprint,
            "machines": self.fleet.machines,
            "reference": self.reference.digest(0, self.problem),
            "repetitions": 1,  # of each measurement; journals have the entry
            "config": dataclasses.asdict(self._config),
        }

    def relative_to(self, level_s: float) -> None:
        """Sets the seconds of the reference plan, the unit of all times."""
        self.level_s = arguments.number("level_s", level_s, above=0, finite=True)

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Times one step of each placement, on all machines at once.

        Raises:
          InputError: wrong shape.
          FleetLost: no machine can measure any more.
        """
        plans = decisions_of(device_of_unit, self.problem)
        measured = dict(self.evaluate_each(plans))
        return Measurement.joined([measured[i] for i in range(len(plans))], self.problem.num_devices)

    def evaluate_each(self, plans: Decisions) -> Iterator[tuple[int, Measurement]]:
        """As ``evaluate``, but yields position and measurement of each plan as soon as possible."""
        rows: dict[str, list[int]] = collections.defaultdict(list)  # by trial: equal plans are measured once
        for i in range(len(plans)):
            plan = plans.digest(i, self.problem)
            rows[trial_id(self.program.digest, plan, self.fleet.machines)].append(i)
        trials = [Trial(name, plans.row(same[0]), self.program.digest) for name, same in rows.items()]
        for reply in self.fleet.measure(trials, self.program):
            measurement = reply.measurement
            assert measurement is not None  # a trial of a machine that could not measure is sent again
            if measurement.status[0] == Status.OK:
                if self.level_s is None:
                    self.level_s = reply.reference_s
                runtime_s = self.level_s * (measurement.runtime_s / reply.reference_s)
                spread_s = np.zeros(1) if measurement.spread_s is None else measurement.spread_s
                spread_s = self.level_s * (spread_s / reply.reference_s)
                measurement = dataclasses.replace(measurement, runtime_s=runtime_s, spread_s=spread_s)
            for i in rows[reply.trial]:
                yield i, measurement


class FleetTiming(contextlib.AbstractContextManager["FleetTiming"]):
    """Evaluators for each form of one program on a fleet, each behind a journal, for a search on live devices.

        with FleetTiming(fleet, item, folder) as timing:
            evaluator = timing.whole(problem, runtime, otherwise)

    The reference plan is timed on this machine first, so that times are in its seconds. A later search of the same
    program starts with the journals in the folder.
    """

    def __init__(self, fleet: Fleet, item: Item, folder: pathlib.Path) -> None:
        """Takes a fleet, which the caller closes, the program with its batch whole, and a folder for journals."""
        self._fleet, self._item, self._folder = fleet, item, folder
        self._evaluators: list[tuple[FleetEvaluator, JournaledEvaluator]] = []
        self._journals = contextlib.ExitStack()

    def __exit__(self, *exc_info: object) -> None:
        self._journals.close()

    @property
    def hosts(self) -> int:
        """Number of machines that measure at the same time."""
        return self._fleet.hosts

    def whole(self, problem: Problem, runtime: RuntimeEvaluator, otherwise: Decisions) -> JournaledEvaluator:
        """Evaluator of the program with its batch whole; arguments as in ``of_form``."""
        return self.of_form(self._item, problem, runtime, otherwise)

    def of_form(
        self, item: Item, problem: Problem, runtime: RuntimeEvaluator, otherwise: Decisions
    ) -> JournaledEvaluator:
        """Evaluator of a form of the program, timed by ``runtime`` here; ``otherwise`` is as in ``FleetEvaluator``.

        Raises:
          InputError: the program cannot be sent, or the journal is damaged.
          WorkerError: workers cannot be started here.
        """
        evaluator = FleetEvaluator(item, problem, self._fleet, otherwise=otherwise)
        name = hashlib.sha256(json.dumps(evaluator.identity, sort_keys=True).encode()).hexdigest()[:12]
        journaled = JournaledEvaluator(evaluator, self._folder / f"fleet-{name}.jsonl")
        self._journals.enter_context(journaled)
        local = runtime.evaluate(evaluator.reference.plain)
        if local.status[0] == Status.OK:
            evaluator.relative_to(float(local.runtime_s[0]))
        self._evaluators.append((evaluator, journaled))
        return journaled

    def sentence(self) -> str:
        """Numbers of plans and machines, and the range of the reference plan's times on them."""
        fleet = self._fleet
        measured = sum(journaled.measured for _, journaled in self._evaluators)
        reused = sum(journaled.reused for _, journaled in self._evaluators)
        machines = "1 machine" if fleet.hosts == 1 else f"{fleet.hosts} machines"
        text = f"{measured} plans were measured by {fleet.actors} actors of a fleet on {machines}"
        programs = [evaluator.program.digest for evaluator, _ in self._evaluators]
        baselines_s = fleet.baselines_s(programs[0]) if programs else []
        if baselines_s:
            text += (
                f", relative to a reference plan that took {milliseconds(min(baselines_s))} to "
                f"{milliseconds(max(baselines_s))} there"
            )
        if fleet.counts.lost:
            text += f"; {fleet.counts.lost} calls were lost and made again"
        if reused:
            text += f"; {reused} answers are those of an earlier run, in the journal"
        return f"{text}."
