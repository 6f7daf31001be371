"""What every learned method is to a search: something that proposes and learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

# [B, U] int32 placements -> step times [B] in seconds, and [B] bool: does it fit.
SimulateFn = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Proposal(NamedTuple):
    """What is to be evaluated before the next update.

    Attributes:
      actions: a nest of tensors, the decisions that fix the placements; for ``Learner.learn``.
      placements: [B, U] int32, what they mean.
    """

    actions: Any
    placements: tf.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Beginning:
    """Where a learner begins.

    Attributes:
      plans: [K, U] int32, K >= 1, plans that cost nothing to find, the best first.
      reference_s: step time that rewards are relative to, above 0.
      simulate: times placements that nobody proposed: they do not count as evaluations.
    """

    plans: np.ndarray
    reference_s: float
    simulate: SimulateFn


class Learner(Protocol):
    """A ``tf.Module`` that draws placements and learns from how they fared.

        proposal = learner.propose()
        learner.learn(proposal.actions, runtime_s, valid)

    Everything that the next proposal depends on is in variables, and what is drawn depends on the seed and the count of
    updates alone: a learner with restored variables goes on as the saved one would have.

    One that can say how sure its policy is has ``entropy()`` too, the mean of a decision in nats as it is now, and
    changes nothing by saying it: ``experiments.learning`` asks.
    """

    def propose(self) -> Proposal:
        """Draws B placements; the same ones until ``learn`` is called."""

    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        """Takes one optimizer step.

        Args:
          actions: what ``propose`` gave last.
          runtime_s: [B] step times of its placements; not read where not valid.
          valid: [B] bool, the placement runs and fits.
        """
