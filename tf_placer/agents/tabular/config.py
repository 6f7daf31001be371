"""Settings of the policy that is a table."""

from __future__ import annotations

import dataclasses

from tf_placer import arguments
from tf_placer.errors import InputError
from tf_placer.grouper.groups import KINDS

LOSSES = ("reinforce", "cross_entropy")


@dataclasses.dataclass(frozen=True)
class TabularConfig:
    """A device for each group from one row of logits, without a network.

    An agent that loses to it, at as many evaluations and over the same groups, has a network that hurts.

    Attributes:
      loss: ``reinforce``, with advantages standardized by batch and Adam; or ``cross_entropy``, which moves the
        probabilities to the frequencies among the best samples (Post: Gao et al. 2018, without its proximal steps).
      groups: ``slack``, min-cut parts split by slack, or ``min_cut``.
      num_groups: most groups.
      samples: placements drawn per update.
      learning_rate: Adam's, of ``reinforce``.
      elites: share of the samples that ``cross_entropy`` moves to.
      smoothing: how far it moves, 1 all the way.
      exploration: share of the draws that is uniform over what is legal, so that it never stops sampling. Of 154 groups
        a share of 0.01 moves 1.5 in each sample, which is dear (docs/results/agent_probes.md).
      start_probability: how often an untaught table chooses each group's device of the plan that it starts from; 0
        leaves it uniform.
      failing_reward: reward of a placement that does not run, below 0.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    loss: str = "reinforce"
    groups: str = "slack"
    num_groups: int = 160
    samples: int = 64
    learning_rate: float = 0.05
    elites: float = 0.1
    smoothing: float = 0.2
    exploration: float = 0.0
    start_probability: float = 0.0
    failing_reward: float = -10.0

    def __post_init__(self) -> None:
        for name, values in (("loss", LOSSES), ("groups", KINDS)):
            if getattr(self, name) not in values:
                raise InputError(
                    f"{name} is {arguments.shown(getattr(self, name))}; give {' or '.join(values)}"
                )
        for name, least in (("num_groups", 1), ("samples", 2)):
            object.__setattr__(self, name, arguments.whole_number(name, getattr(self, name), least))
        limits: dict[str, dict[str, float]] = {
            "learning_rate": {"least": 0},
            "elites": {"above": 0, "most": 1},
            "smoothing": {"least": 0, "most": 1},
            "exploration": {"least": 0, "most": 1},
            "start_probability": {"least": 0, "below": 1},
            "failing_reward": {"below": 0},
        }
        for name, limit in limits.items():
            object.__setattr__(self, name, arguments.number(name, getattr(self, name), finite=True, **limit))
