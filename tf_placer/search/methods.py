"""Every search method by name."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.learner import HdpLearner
from tf_placer.agents.learner import Beginning, SimulateFn
from tf_placer.arguments import nearest
from tf_placer.errors import InputError
from tf_placer.evaluation.any_order import search_simulator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.planners.local_search import LocalSearch
from tf_placer.planners.random_blocks import RandomBlocks
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planners.topological_fill import topological_fill
from tf_placer.problem.problem import Problem
from tf_placer.registration import check_registration
from tf_placer.search.round import Context, Method, Round, evaluated

RANDOM_BATCH = 16
LOCAL_SEARCH_BATCH = 4


def hdp(context: Context, config: HdpConfig = HdpConfig()) -> Iterator[Round]:
    """Hierarchical planner: Grouper and Placer trained with REINFORCE (Mirhoseini et al. 2018)."""

    if not context.rounds:
        yield evaluated(context, context.start[np.newaxis])
    beginning = Beginning(context.plans, context.reference_s, _simulate(context))
    learner = HdpLearner(context.problem, config, beginning, context.seed)
    context.checkpoint.track(learner, learner.settings)
    while True:
        proposal = learner.propose()
        batch = evaluated(context, proposal.placements.numpy())
        learner.learn(proposal.actions, tf.constant(batch.runtime_s), tf.constant(batch.valid))
        yield batch


def _simulate(context: Context) -> SimulateFn:
    """What times a plan as groups: never the runtime, which is not asked for what nobody proposed."""
    evaluator = context.evaluator
    simulator = evaluator if isinstance(evaluator, SimulatedEvaluator) else search_simulator(context.problem)

    def simulate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        times = simulator.times(tf.constant(rows))
        return times.runtime_s.numpy(), times.fits.numpy()

    return simulate


def random(context: Context) -> Iterator[Round]:
    """Random search over block placements of every granularity."""
    blocks = RandomBlocks(context.problem, context.seed)
    for _ in range(context.rounds):
        blocks.draw(RANDOM_BATCH)
    while True:
        yield evaluated(context, blocks.draw(RANDOM_BATCH))


def local_search(context: Context) -> Iterator[Round]:
    """Late acceptance: moves one connected piece of a plan at a time (Burke & Bykov 2017)."""
    climber = LocalSearch(context.problem, context.start, context.seed)
    rows = context.start[np.newaxis]
    for made in itertools.count():
        batch = evaluated(context, rows)
        # A search that goes on evaluates its earlier rounds again: a journal knows what was measured.
        if made >= context.rounds:
            yield batch
        climber.learn(rows, np.where(batch.valid, batch.runtime_s, np.inf))
        rows = climber.propose(LOCAL_SEARCH_BATCH)


def single(context: Context) -> Iterator[Round]:
    """Everything on one device, each in turn."""
    yield from _all_at_once(context, single_device_placements)


def topological(context: Context) -> Iterator[Round]:
    """Devices filled in topological order, the fastest first, several ways (m-TOPO: Jeon et al. 2020, Baechi)."""
    yield from _all_at_once(context, topological_fill)


def list_scheduling(context: Context) -> Iterator[Round]:
    """List schedule: each op in order of urgency where it ends first (HEFT: Topcuoglu, Hariri & Wu 2002)."""
    yield from _all_at_once(context, list_schedule)


def _all_at_once(context: Context, planner: Callable[[Problem], np.ndarray]) -> Iterator[Round]:
    """One round of all that a planner makes, if it makes anything."""
    rows = planner(context.problem)
    if not context.rounds and len(rows):
        yield evaluated(context, rows)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A method and what may be asked of it.

    Attributes:
      run: the method.
      uses_start: it begins at a plan, the one it is given or the best that costs nothing, and tries that first.
      goes_on: it uses up whatever budget it has; the others make a few plans and are done.
    """

    run: Method
    uses_start: bool = False
    goes_on: bool = False


_METHODS: dict[str, Entry] = {
    "hdp": Entry(hdp, uses_start=True, goes_on=True),
    "list_schedule": Entry(list_scheduling),
    "local_search": Entry(local_search, uses_start=True, goes_on=True),
    "random": Entry(random, goes_on=True),
    "single": Entry(single),
    "topological_fill": Entry(topological),
}
_BUILT_IN = frozenset(_METHODS)


def register(name: str, method: Method, *, uses_start: bool = False, goes_on: bool = False) -> None:
    """Makes a method known to ``search(method=name)`` and to ``--method=name`` in this process.

    Args:
      name: small letters, digits and ``_``.
      method: gives rounds (``tf_placer.search.Method``); the first line of its docstring describes it.
      uses_start, goes_on: see ``Entry``.

    Raises:
      InputError: the name is none or comes with tf_placer, or the method cannot be called or has no docstring.
    """
    check_registration("method", name, method, _BUILT_IN)
    if not method.__doc__:
        raise InputError(f"method {name!r} has no docstring; `methods` shows its first line")
    _METHODS[name] = Entry(method, uses_start, goes_on)


def names() -> tuple[str, ...]:
    """Names of all methods, sorted."""
    return tuple(sorted(_METHODS))


def describe(name: str) -> str:
    """The first sentence about a method."""
    return str(find(name).run.__doc__).splitlines()[0]


def find(name: str) -> Entry:
    """The entry of the method called ``name``.

    Raises:
      InputError: unknown name; the message gives the nearest ones.
    """
    if name not in _METHODS:
        raise InputError(f"no method is called {name!r}; {nearest(name, names())}")
    return _METHODS[name]
