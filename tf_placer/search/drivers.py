"""What drives methods of each kind: one loop each, which evaluates, hands back, and has it kept."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import Beginning, SimulateFn
from tf_placer.evaluation.any_order import simulator_beside
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.method_spec import Kind, MethodSpec
from tf_placer.planners.planner import Proving
from tf_placer.search.round import Context, Round, evaluated

# A burst inside the simulator: long enough to cost nothing, short enough for progress and Ctrl-C.
_BURST_S = 0.25
_FIRST_BURST = 64


def rounds(spec: MethodSpec, config: Any, context: Context) -> Iterator[Round]:
    """The rounds of a method, from where its search was interrupted on.

    Args:
      spec: its row.
      config: an instance of ``spec.config``.
      context: the search.
    """
    return _DRIVERS[spec.kind](spec, config, context)


def _constructive(spec: MethodSpec, config: Any, context: Context) -> Iterator[Round]:
    """One round of all that a planner makes, if it makes anything."""
    if context.rounds:
        return
    rows = spec.build(context.problem, config, context.seed)
    if len(rows):
        yield evaluated(context, rows)


def _improving(spec: MethodSpec, config: Any, context: Context) -> Iterator[Round]:
    """Proposes, evaluates, learns; from the start on, where there is one."""
    start = context.start if spec.uses_start else None
    if spec.build_inside is not None and isinstance(context.evaluator, SimulatedEvaluator):
        yield from _inside(spec, config, context, context.evaluator)
        return
    planner = spec.build(context.problem, config, start, context.seed)
    if not context.checkpoint.track_state(planner) and start is None:
        # A checkpoint from before planners were kept: what was drawn is drawn again.
        for _ in range(context.rounds):
            planner.propose()
    rows = start[np.newaxis] if start is not None and not context.rounds else None
    while True:
        rows = planner.propose() if rows is None else rows
        batch = evaluated(context, rows)
        planner.learn(rows, np.where(batch.valid, batch.runtime_s, np.inf))
        rows = None
        if isinstance(planner, Proving) and isinstance(context.evaluator, SimulatedEvaluator):
            batch = dataclasses.replace(batch, proven_s=planner.proven_s())
        yield batch


def _inside(
    spec: MethodSpec, config: Any, context: Context, simulator: SimulatedEvaluator
) -> Iterator[Round]:
    """Has a planner that simulates by itself do so, a burst at a time."""
    assert spec.build_inside is not None
    if not context.rounds:
        yield evaluated(context, context.start[np.newaxis])
    planner = spec.build_inside(context.problem, config, context.start, context.seed, simulator)
    context.checkpoint.track_state(planner)
    size = _FIRST_BURST
    while True:
        begin_s = time.monotonic()
        burst = planner.advance(int(min(size, context.evaluations_left())))
        yield Round(
            burst.device_of_unit, burst.runtime_s, np.isfinite(burst.runtime_s), evaluations=burst.evaluations
        )
        took_s = max(time.monotonic() - begin_s, 1e-6)
        size = max(_FIRST_BURST, int(min(2 * size, burst.evaluations * _BURST_S / took_s)))


def _learned(spec: MethodSpec, config: Any, context: Context) -> Iterator[Round]:
    """Draws, evaluates, teaches."""
    if spec.uses_start and not context.rounds:
        yield evaluated(context, context.start[np.newaxis])
    beginning = Beginning(context.plans, context.reference_s, _simulate(context))
    learner = spec.build(context.problem, config, beginning, context.seed)
    context.checkpoint.track(learner)
    while True:
        proposal = learner.propose()
        batch = evaluated(context, proposal.placements)
        learner.learn(proposal.actions, tf.constant(batch.runtime_s), tf.constant(batch.valid))
        yield batch


def _own_rounds(spec: MethodSpec, config: Any, context: Context) -> Iterator[Round]:
    """Leaves everything to the method."""
    return iter(spec.build(context, config))


def _simulate(context: Context) -> SimulateFn:
    """What times plans that nobody proposed: never the runtime."""
    simulator = simulator_beside(context.evaluator, context.problem)

    def simulate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        times = simulator.times(tf.constant(rows))
        return times.runtime_s.numpy(), times.fits.numpy()

    return simulate


_DRIVERS = {
    Kind.CONSTRUCTIVE: _constructive,
    Kind.IMPROVING: _improving,
    Kind.LEARNED: _learned,
    Kind.OWN_ROUNDS: _own_rounds,
}
