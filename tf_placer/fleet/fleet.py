"""Driver of a fleet: sends trials to machines, again where no answer comes, and counts every answer once."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_placer.base.arguments import InputError, told
from tf_placer.evaluation.measurement import Status
from tf_placer.fleet.trial import Program, Reply, Trial
from tf_placer.workers.local_workers import UnreachableServer, WorkerError

_TICK_S = 0.2
_AGAIN_S = 0.5  # until a machine that does not answer is asked again


class UnreachableFleet(UnreachableServer):
    """No machine of a fleet can be reached."""


class FleetLost(WorkerError):
    """Machines that were there can no longer measure, all of them."""


@dataclasses.dataclass(frozen=True)
class FleetConfig:
    """Settings of a fleet.

    Attributes:
      max_restarts: of each actor, by Ray.
      attempts: times that a trial is sent, when what measures it dies; then the plan is CRASHED.
      repetitions: measurements of each plan, on whichever machine is free; their median counts.
      start_s: most seconds until the first machine answers.
      reply_s: seconds after which an answer counts as lost: the trial is sent again and the actor started anew.
      failures: in a row, after which a machine is left out.
    """

    max_restarts: int = 100
    attempts: int = 3
    repetitions: int = 1
    start_s: float = 300.0
    reply_s: float = 1800.0
    failures: int = 20


@dataclasses.dataclass
class Counts:
    """Counts of a fleet since it was opened: calls sent, answers that counted, answers to what had one, calls lost."""

    sent: int = 0
    counted: int = 0
    doubles: int = 0
    lost: int = 0


@dataclasses.dataclass(eq=False)
class _Machine:
    """A machine as the driver sees it.

    Attributes:
      name: for messages.
      handle: of its actor.
      host: that it says; "" before it has answered.
      is_ready: it has answered, and nothing is asked of it.
      failures: in a row.
      why_lost: one line; "" while it is used.
      not_before_s: when it may be asked again.
      reference_s: its last baseline of each program.
    """

    name: str
    handle: Any
    host: str = ""
    is_ready: bool = False
    failures: int = 0
    why_lost: str = ""
    not_before_s: float = 0.0
    reference_s: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class _Call:
    """A call without an answer so far: of a trial, or ``hello`` where that is None."""

    machine: _Machine
    trial: Trial | None
    since_s: float
    is_overdue: bool = False


class Fleet:
    """The machines, and the trials that are under way.

        with open_fleet(address, cluster) as fleet:
            for reply in fleet.measure(trials, program):
                ...

    A call is lost when its actor dies or no answer comes in time; its trial is sent again, to whichever machine is
    free. So a trial may be measured twice, and of two answers the first counts. Who keeps the answers
    (``JournaledEvaluator``) goes on from them.
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
        """Takes over actors; ``start`` asks who they are.

        Args:
          ray: the module, or what has its ``wait``, ``get``, ``put``, ``kill`` and ``exceptions``.
          handles: name -> actor of a ``Machine``.
          expected: ``software`` and ``machines`` that each must answer to ``hello``.
          config: settings.
          on_close: leaves the cluster.
          clock, sleep: seconds, and what lets them pass.
        """
        self._ray, self._expected, self._config = ray, expected, config
        self._machines = [_Machine(name, handle) for name, handle in handles.items()]
        self._on_close, self._clock, self._sleep = on_close, clock, sleep
        self._calls: dict[Any, _Call] = {}
        self._programs: dict[str, Any] = {}  # digest -> where the object store has it
        self.counts = Counts()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def config(self) -> FleetConfig:
        """Its settings."""
        return self._config

    @property
    def machines(self) -> str:
        """The class of its machines."""
        return str(self._expected["machines"])

    @property
    def actors(self) -> int:
        """Actors that answer."""
        return sum(bool(one.host) and not one.why_lost for one in self._machines)

    @property
    def hosts(self) -> int:
        """Different machines that these are on."""
        return len({one.host for one in self._machines if one.host and not one.why_lost})

    def baselines_s(self, program: str) -> list[float]:
        """Last baseline of each actor that has measured a program."""
        return [one.reference_s[program] for one in self._machines if program in one.reference_s]

    def start(self) -> None:
        """Waits until every machine has said who it is, or can no longer be waited for.

        Raises:
          UnreachableFleet: none answers.
          InputError: one has another version of tf_placer or TensorFlow, or other devices.
        """
        until_s = self._clock() + self._config.start_s
        while self._clock() < until_s and not all(one.is_ready or one.why_lost for one in self._machines):
            self._ask_who_they_are()
            for call, answer in self._answers():
                refusal = self._met(call.machine, answer)
                if refusal:
                    raise InputError(refusal)
        if not self.actors:
            why = next((one.why_lost for one in self._machines if one.why_lost), "none has answered")
            raise UnreachableFleet(
                f"no machine of the fleet can be used within {self._config.start_s:g} s ({why}); look whether it runs "
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
        """Measures trials on all machines at once; yields one reply for each, as they come.

        Args:
          trials: of one program, each id once.
          program: that they are of.

        Raises:
          FleetLost: no machine can measure any more.
        """
        if program.digest not in self._programs:
            self._programs[program.digest] = self._ray.put(program)
        missing = {trial.id: trial for trial in trials}
        waiting, sent = collections.deque(trials), collections.Counter[str]()
        while missing:
            self._ask_who_they_are()
            self._send(waiting, missing, sent)
            if all(machine.why_lost for machine in self._machines):
                raise FleetLost(
                    f"no machine of the fleet can measure any more: {self._machines[-1].why_lost}"
                )
            for trial, reply in [*self._overdue(), *self._replies()]:
                if trial.id not in missing:
                    self.counts.doubles += reply is not None
                elif reply is None and sent[trial.id] < self._config.attempts:
                    waiting.append(trial)
                else:
                    del missing[trial.id]
                    self.counts.counted += 1
                    yield reply or self._died(trial)

    def _died(self, trial: Trial) -> Reply:
        times = self._config.attempts
        message = f"what measured it died or answered nothing, {times} times in a row"
        return Reply(trial.id, int(Status.CRASHED), message)

    def _send(
        self,
        waiting: collections.deque[Trial],
        missing: Mapping[str, Trial],
        sent: collections.Counter[str],
    ) -> None:
        """Gives every free machine a trial."""
        for machine in self._machines:
            while machine.is_ready and waiting:
                trial = waiting.popleft()
                if trial.id not in missing:
                    continue
                sent[trial.id] += 1
                self.counts.sent += 1
                program = self._programs[trial.program]
                self._call(machine, trial, machine.handle.measure.remote(trial, program))

    def _ask_who_they_are(self) -> None:
        """Asks machines that are new, or did not answer, who they are: what Ray starts anew may be another."""
        asked = {call.machine for call in self._calls.values()}
        for machine in self._machines:
            is_due = self._clock() >= machine.not_before_s
            if not machine.is_ready and not machine.why_lost and machine not in asked and is_due:
                self._call(machine, None, machine.handle.hello.remote())

    def _call(self, machine: _Machine, trial: Trial | None, reference: Any) -> None:
        machine.is_ready = False
        self._calls[reference] = _Call(machine, trial, self._clock())

    def _overdue(self) -> Iterator[tuple[Trial, None]]:
        """Trials whose answer counts as lost from now on; their actors are started anew."""
        for call in self._calls.values():
            is_late = self._clock() - call.since_s > self._config.reply_s
            if is_late and not call.is_overdue and call.trial is not None:
                call.is_overdue = True
                self.counts.lost += 1
                self._ray.kill(call.machine.handle, no_restart=False)
                yield call.trial, None

    def _answers(self) -> Iterator[tuple[_Call, Any]]:
        """Calls that have ended, with what they gave; a Ray error where the actor or its machine is gone."""
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
                raise  # an error of ours
            except errors.RayError as error:
                answer = error
            yield call, answer

    def _replies(self) -> Iterator[tuple[Trial, Reply | None]]:
        """Trials whose calls have ended, with their replies; None where there is none. Takes note of greetings."""
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
                if not call.is_overdue:  # else it is known already
                    self.counts.lost += 1
                    yield call.trial, None

    def _met(self, machine: _Machine, answer: Any) -> str:
        """Takes a machine's word on who it is; why it cannot be used, "" where it can or is asked again."""
        if not isinstance(answer, dict):
            self._failed(machine, told(answer))
            return machine.why_lost
        name = f"machine {answer['host']} of the fleet"
        if answer["software"] != self._expected["software"]:
            theirs, ours = (
                ", ".join(f"{what} {version}" for what, version in one.items())
                for one in (answer["software"], self._expected["software"])
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
        if machine.failures >= self._config.failures:
            machine.why_lost = f"{machine.name} failed {machine.failures} times in a row, at last: {why}"
