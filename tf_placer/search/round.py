"""What a search method yields: a batch of evaluated placements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer import arguments
from tf_placer.evaluation.evaluator import Evaluator
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.problem import Problem
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.starts import Starts


@dataclasses.dataclass(frozen=True, eq=False)
class Round:
    """B placements that a method tried together, or the best of those that it tried.

    Attributes:
      decisions: what they decide; devices alone may be given as [B, U] int32. Of tensors only the best row is ever
        copied out.
      runtime_s: [B] float; not meaningful where not ``valid``.
      valid: [B] bool, the placement runs and fits.
      evaluations: placements that were tried to find these; None: these and no others.
      found_by: the method inside a method that found these; empty where there is none.
      proven_s: no placement that fits takes less, by what the method has proven so far; 0: it proves nothing.

    Raises:
      InputError: the decisions are none, as many evaluations as there cannot be, or a negative time.
    """

    decisions: Decisions
    runtime_s: np.ndarray
    valid: np.ndarray
    evaluations: int | None = None
    found_by: str = ""
    proven_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "decisions", _bundled(self.decisions))
        if self.evaluations is not None:
            arguments.whole_number("evaluations", self.evaluations, least=0)
        arguments.instance_of("found_by", self.found_by, str, "give the name of a method")
        arguments.number("proven_s", self.proven_s, least=0)


def _bundled(decisions: Any) -> Decisions:
    return decisions if isinstance(decisions, Decisions) else Decisions(decisions)


@dataclasses.dataclass(frozen=True)
class Context:
    """What every method is given.

    Attributes:
      problem: what to place.
      evaluator: times placements.
      starts: the plans that cost nothing to find; ``reference_s`` is their best one's, for rewards.
      given: [U], where a method that improves a placement is told to begin; None when it is not.
      seed: fixes everything random.
      rounds: that this search had made when it was interrupted; the method goes on after them.
      checkpoint: keeps what a method has learned, see ``Checkpoint.track``.
      evaluations_left: says how many more the budget allows, infinite where only time counts.
      used: says what share of the budget is used up, from 0 on.
    """

    problem: Problem
    evaluator: Evaluator
    starts: Starts
    given: np.ndarray | None
    seed: int
    rounds: int
    checkpoint: Checkpoint
    evaluations_left: Callable[[], float] = lambda: math.inf
    used: Callable[[], float] = lambda: 0.0

    @property
    def plans(self) -> np.ndarray:
        """[K, U], where a method that improves a placement may begin, the fastest first: the one given, if one is."""
        return self.starts.plans if self.given is None else self.given[np.newaxis]

    @property
    def start(self) -> np.ndarray:
        """[U], the first of ``plans``."""
        return self.plans[0]

    @property
    def start_by(self) -> str:
        """What made ``start``: the name of a method; ``"start"`` where it was given."""
        return self.starts.made_by[0] if self.given is None else "start"

    @property
    def reference_s(self) -> float:
        """What rewards are relative to, wherever a search begins."""
        return self.starts.reference_s


# Yields rounds until the caller stops asking, or for good when there is nothing more to try.
Method = Callable[[Context], Iterator[Round]]


def evaluated(context: Context, plans: np.ndarray | tf.Tensor | Decisions) -> Round:
    """Evaluates placements [B, U], or all that B plans decide, as one round."""
    decisions = decisions_of(plans, context.problem)
    if isinstance(context.evaluator, SimulatedEvaluator):
        times = context.evaluator.times(decisions)
        return Round(decisions, times.runtime_s.numpy(), times.fits.numpy())
    measurement = context.evaluator.evaluate(decisions.plain)
    return Round(decisions, measurement.runtime_s, measurement.status == Status.OK)
