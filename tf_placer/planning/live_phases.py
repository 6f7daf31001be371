"""What a live search does besides searching, how long that takes, and how it keeps within a budget."""

from __future__ import annotations

import dataclasses
import math

from tf_placer.method_spec import Role
from tf_placer.planning.live import MEASURE, RACE, LiveConfig, searching
from tf_placer.problem.problem import Problem
from tf_placer.runtime.race import TURN_S
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.search import methods
from tf_placer.search.budget import Budget
from tf_placer.waiting.durations import Durations
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import Phase
from tf_placer.workers.fork_server import has_forked

START = "starting workers"
CONTROL_SHARE = 0.1  # of the time of all searches, for random search

# Rules for what was never done on this machine, from an idle one with two cores.
_START_S, _START_AGAIN_S, _OP_S = 5.0, 1.0, 5e-5
_LOAD_S, _LOAD_S_PER_OP = 0.05, 5e-5

_MOST_SHARE = 0.4  # of the whole budget, for measuring and racing
# Turns of a race that can still tell, where there is little time.
_FEWER = ((2, 15), (1, 10))


@dataclasses.dataclass(frozen=True)
class Size:
    """What measuring a program takes depends on.

    Attributes:
      name: of the program on its cluster.
      devices: how many there are.
      ops: of the program; a guess where it was not read yet.
      given_step_s: of the best single device, where costs are known.
    """

    name: str
    devices: int
    ops: int = 2000
    given_step_s: float | None = None

    @property
    def step_s(self) -> float:
        """Of the best single device."""
        return self.ops * _OP_S if self.given_step_s is None else self.given_step_s

    @staticmethod
    def of(problem: Problem, name: str = "") -> Size:
        """As the costs of a problem have it, if its ops follow each other."""
        step_s = float(problem.compute_ns.sum(axis=0).min()) / 1e9
        name = name or size_name(problem.name, problem.cluster.name)
        return Size(name, problem.num_devices, problem.num_ops, step_s)


def size_name(program: str, cluster: str) -> str:
    """What durations are kept under."""
    return f"{program} on {cluster}"


def live_phases(
    size: Size, method: str, config: LiveConfig, durations: Durations, meanwhile: str = ""
) -> tuple[Phase, ...]:
    """From the start of the workers to the race; searches take as long as is decided later.

    Args:
      size: of what is placed.
      method: that searches.
      config: of the live search.
      durations: of earlier runs.
      meanwhile: as in ``starting``.
    """
    where = f"{size.name} with {method}"
    measuring = f"measuring {config.searches} {where}"
    racing = f"racing {config.rounds} {where}"
    return (
        starting(size.devices, durations, meanwhile),
        *(Phase(searching(one), 0.0, in_turn=True) for one in searchers(method)),
        Phase(
            MEASURE, durations.known(measuring, _measuring_s(size, method, config)), measuring, in_turn=True
        ),
        Phase(RACE, durations.known(racing, _racing_s(size, config)), racing),
    )


def starting(devices: int, durations: Durations, meanwhile: str = "") -> Phase:
    """The start of workers: by far the most of it is that TensorFlow is imported, which is done once.

    Args:
      devices: how many there are.
      durations: of earlier runs.
      meanwhile: what is done while it is imported, if that counts.
    """
    again = has_forked()
    key = f"starting workers {devices}{' again' if again else meanwhile}"
    return Phase(START, durations.known(key, _START_AGAIN_S if again else _START_S), key)


def searchers(method: str) -> tuple[str, ...]:
    """Who searches where a method does: it, the plain search, if it stands beside it, and random search."""
    if Role.REFERENCE in methods.find(method).roles:
        return ()
    beside = () if Role.DEFAULT in methods.find(method).roles else (methods.the(Role.PLAIN).name,)
    return tuple(dict.fromkeys((method, *beside, methods.the(Role.CONTROL).name)))


def config_within(size: Size, method: str, budget_s: float) -> LiveConfig:
    """The live search as it is meant to be, or with fewer searches and turns where measuring would take too much."""
    config = LiveConfig()
    for searches, rounds in _FEWER:
        if _measuring_s(size, method, config) + _racing_s(size, config) <= _MOST_SHARE * budget_s:
            break
        config = dataclasses.replace(config, searches=searches, rounds=rounds)
    return config


def live_budget(wait: Wait, budget: Budget, method: str, config: LiveConfig) -> tuple[Budget, LiveConfig]:
    """The budget of a live search within the whole, told before its phases begin or as they do.

    Args:
      wait: has the phases of ``live_phases``.
      budget: of the whole.
      method: that searches.
      config: of the live search.

    Returns:
      The budget of all of the method's searches together, and the config with random search's.
    """
    names = searchers(method)
    if math.isinf(budget.seconds) or not names:
        return budget, config
    seconds = wait.for_searching(budget.seconds, [searching(name) for name in names])
    control = methods.the(Role.CONTROL).name
    shares = dict.fromkeys(names, seconds / len(names))
    if control != method:
        control_s = CONTROL_SHARE * seconds
        shares = dict.fromkeys(names, (seconds - control_s) / (len(names) - 1)) | {control: control_s}
        config = dataclasses.replace(config, control_s=control_s)
    wait.expect({searching(name): share_s for name, share_s in shares.items()})
    return Budget(shares[method], budget.evaluations), config


def _load_s(size: Size) -> float:
    return _LOAD_S + _LOAD_S_PER_OP * size.ops


def _measuring_s(size: Size, method: str, config: LiveConfig) -> float:
    plans = size.devices + config.searches * len(searchers(method))
    timing = RuntimeConfig()
    return plans * (_load_s(size) + (timing.warmup_steps + timing.steps) * size.step_s)


def _racing_s(size: Size, config: LiveConfig) -> float:
    racers = config.finalists + 2  # the best single device, and the best of another method
    return racers * (_load_s(size) + config.rounds * max(TURN_S, size.step_s))
