"""Live search on real devices: simulate, measure the best, refit, search again, race."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable

from tf_placer.base import interrupt
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.fleet.fleet import FleetTiming
from tf_placer.planning.forms import Form
from tf_placer.planning.live_search import CONSTRUCTIVE_PLANS, LiveConfig, LiveSearch, MakeParts
from tf_placer.planning.outcome import Outcome
from tf_placer.planning.road import CONTROL_SHARE, LEAST_S, MEASURE, RACE, SPLIT_STAGE, Road, searching
from tf_placer.planning.stages import Stage
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import TURN_S, RuntimeConfig
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, DEFAULT, PLAIN, REFERENCE, Budget
from tf_placer.search.recorder import Progress

# Rules for what was never done on this machine, from an idle one with two cores.
_LOAD_S, _LOAD_S_PER_OP = 0.05, 5e-5
_REFERENCES = 4  # measurements of the reference plan, here and there
_MOST_SHARE = 0.4  # of the whole budget, for measuring and racing
# Turns of a race that can still tell, where there is little time.
_FEWER = ((2, 15), (1, 10))


def search_live(
    problem: Problem,
    evaluator: RuntimeEvaluator,
    method: str,
    budget: Budget,
    seed: int = 0,
    config: LiveConfig = LiveConfig(),
    make_parts: MakeParts | None = None,
    fleet: FleetTiming | None = None,
) -> Outcome:
    """Searches on the calibrated simulator and lets the runtime have the last word.

    A search exploits the errors of its simulator, and the measurement of what it found is what corrects them: so
    search, measure, refit, search again; the last time from the method's best measured plan, if it is one that improves
    plans, and before that anew, because a climb that goes on stays where it is stuck. After each of the method's
    searches a plain one (``Role.PLAIN``) gets the same budget, unless the method is the default, and in the end random
    search as many evaluations as the method's last, in no more time, so that it shows what the method is worth; the
    fastest wins, whoever found it. The program as it is races, too. Measuring is not in the budget; it takes seconds a
    placement. Ctrl-C skips what is left and keeps what was measured.

    Args:
      problem: profiled (``build_problem``) on the evaluator's devices.
      evaluator: of the same item and problem.
      method: a name of ``tf_placer.methods()``.
      budget: of all of the method's searches together; the plain ones are not in it.
      seed: of the first search; each has the next.
      config: how to spend the time.
      make_parts: gives the program with its batch in parts, profiled, or why there is none. After the searches of the
        whole the method has as many among its plans, each from the best one that was measured, of which the first are
        data parallelism and the best searched plan of the whole with all copies together. All race.
      fleet: measures in the evaluator's place, which still races: turns are of one machine. The best plans of
        constructive methods are measured, too, since several at once take no longer than one.

    Returns:
      What it recommends as ``written``: the fastest in the race, or the best single device where no plan is clearly
      faster than that. Beside it the best single device, the best of the method and of those that searched beside it;
      what another method had found before is a method's own, too.

    Raises:
      InputError: an unknown method.
      NothingFits: nothing ran that was measured.
      WorkerError, UnreachableServer: the workers cannot be started or found, and nothing was measured before.
      KeyboardInterrupt: Ctrl-C before anything was measured.
    """
    live = LiveSearch(Form(problem), evaluator, seed, config, {}, make_parts=make_parts, fleet=fleet)
    with interrupt.stoppable():
        for part in live_parts(method, config.searches, make_parts is not None):
            live.do(part.run, budget.share(config.searches))
    return live.result(method)


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a live search.

    Attributes:
      name: of its stage.
      run: does it; a search has so much of a budget.
      method: that searches; "" where it is no search.
    """

    name: str
    run: Callable[[LiveSearch, Budget], None]
    method: str = ""


def searchers(method: str) -> tuple[str, ...]:
    """Methods that search: the one asked for, the plain search if it is its companion, and random search."""
    if methods.find(method).name == REFERENCE:
        return ()
    # The default is made of such: no other stands beside it.
    companions = () if method == DEFAULT else (PLAIN,)
    return tuple(dict.fromkeys((method, *companions, CONTROL)))


def live_parts(method: str, searches: int, tries_parts: bool = False) -> list[Part]:
    """Parts of a live search in their order; random search only once, unless it is asked for.

    Args:
      method: that is asked for.
      searches: of each that searches.
      tries_parts: the batch is put in parts, too, where the method is one that searches.
    """
    parts = [Part(MEASURE, lambda live, _: live.measure_what_is_there())]
    measure_proposed = Part(MEASURE, lambda live, _: live.measure_proposed())
    for turn in range(searches):
        for name in searchers(method):
            if name != CONTROL or method == CONTROL or turn == searches - 1:
                propose = functools.partial(
                    LiveSearch.propose, method=method, name=name, turn=turn, searches=searches
                )
                parts += [Part(searching(name), propose, name), measure_proposed]
    if tries_parts and searchers(method):
        parts.append(Part(SPLIT_STAGE, lambda live, _: live.put_in_parts()))
        parts.append(Part(MEASURE, lambda live, _: live.measure_parts()))
        for turn in range(searches):
            propose = functools.partial(LiveSearch.propose_parts, method=method, turn=turn, searches=searches)
            parts += [Part(searching(method), propose, method), measure_proposed]
    return [*parts, Part(RACE, lambda live, _: live.race())]


def live_stages(
    road: Road,
    progress: Callable[[str, Budget], Progress],
    then: Callable[[Outcome], None],
    meanwhile: str = "",
    start: Placement | None = None,
    make_parts: MakeParts | None = None,
) -> list[Stage]:
    """A live search of what a road asks for, from the start of the workers to the race.

    Args:
      road: its program on live devices.
      progress: makes what shows a search, from its title and budget.
      then: is given what was found, as the last part of the race, while the workers are still there.
      meanwhile: as ``Road.starting`` takes it.
      start: see ``LiveSearch``.
      make_parts: see ``search_live``.
    """
    asked, config = road.asked, config_within(road)
    running: list[LiveSearch] = []

    def do(part: Part, seconds: float) -> None:
        if not running:
            assert road.form is not None  # it is built
            of_road = road.form, road.runtime, asked.seed, config, asked.settings
            running.append(LiveSearch(*of_road, progress, start, make_parts, road.fleet))
        share = asked.budget.share(config.searches)
        seconds = road.control_s(seconds) if part.method == CONTROL != asked.method else seconds
        running[0].do(part.run, Budget(min(share.seconds, max(seconds, LEAST_S)), share.evaluations), seconds)

    parts = live_parts(asked.method, config.searches, make_parts is not None)
    counts = Counter(part.name for part in parts)
    where = f"{asked.where} with {asked.method}"
    in_parts = "" if make_parts is None else ", also in parts"
    on_fleet = "" if asked.fleet is None else f", on the fleet {asked.fleet}"
    keys = {
        MEASURE: f"measuring {config.searches} {where}{in_parts}{on_fleet}",
        RACE: f"racing {config.rounds} {where}{in_parts}",
        SPLIT_STAGE: road.split_key,
    }
    rules_s = {
        MEASURE: _measuring_s(road, config) * (1 if make_parts is None else 2),
        RACE: _racing_s(road, config) + (0.0 if make_parts is None else 2 * _racer_s(road, config)),
        SPLIT_STAGE: road.split_s,
    }
    names = searchers(asked.method)
    shares = dict.fromkeys(names, 1 / max(len(names), 1))
    if asked.method != CONTROL:
        shares = dict.fromkeys(names, (1 - CONTROL_SHARE) / max(len(names) - 1, 1)) | {CONTROL: CONTROL_SHARE}
    stages = [road.starting(meanwhile, beside_unplaced=True)]
    for part in parts:
        run = functools.partial(do, part)
        if part.method:
            stages.append(road.searching(run, part.method, shares[part.method], counts[part.name]))
        else:
            seconds = road.stages.durations.known(keys[part.name], rules_s[part.name]) / counts[part.name]
            is_cut = part.name != SPLIT_STAGE
            stages.append(Stage(part.name, run, seconds, keys[part.name], is_cut=is_cut))
    # The plan that is written is loaded once more, and a step of it is traced.
    tracing_s = 2 * _load_s(road) + (RuntimeConfig().warmup_steps + 1) * road.step_s
    return [*stages, Stage(RACE, lambda _: then(running[0].result(asked.method)), tracing_s)]


def config_within(road: Road) -> LiveConfig:
    """The live search as it is meant to be, or with fewer searches and turns where measuring would take too much."""
    config = LiveConfig()
    if math.isfinite(road.asked.whole_s) and searchers(road.asked.method):
        for searches, rounds in _FEWER:
            if _measuring_s(road, config) + _racing_s(road, config) <= _MOST_SHARE * road.asked.whole_s:
                break
            config = dataclasses.replace(config, searches=searches, rounds=rounds)
    return config


def _load_s(road: Road) -> float:
    return _LOAD_S + _LOAD_S_PER_OP * road.assumed_ops


def _measuring_s(road: Road, config: LiveConfig) -> float:
    plans = len(road.asked.cluster.devices) + config.searches * len(searchers(road.asked.method))
    plans += 0 if road.asked.fleet is None else CONSTRUCTIVE_PLANS + _REFERENCES
    timing = RuntimeConfig()
    return plans * (_load_s(road) + (timing.warmup_steps + timing.steps) * road.step_s)


def _racing_s(road: Road, config: LiveConfig) -> float:
    racers = config.finalists + 3  # the best single device, that of another method, and the program as it is
    return racers * _racer_s(road, config)


def _racer_s(road: Road, config: LiveConfig) -> float:
    return _load_s(road) + config.rounds * max(TURN_S, road.step_s)
