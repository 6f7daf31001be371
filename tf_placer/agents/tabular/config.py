"""Settings of the policy that is a table."""

from __future__ import annotations

import dataclasses

from tf_placer.grouper.groups import KINDS
from tf_placer.method_spec import Settings, setting

LOSSES = ("reinforce", "cross_entropy")


@dataclasses.dataclass(frozen=True)
class TabularConfig(Settings):
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

    loss: str = setting("reinforce", words=LOSSES)
    groups: str = setting("slack", words=KINDS)
    num_groups: int = setting(160, least=1)
    samples: int = setting(64, least=2)
    learning_rate: float = setting(0.05, least=0)
    elites: float = setting(0.1, above=0, most=1)
    smoothing: float = setting(0.2, least=0, most=1)
    exploration: float = setting(0.0, least=0, most=1)
    start_probability: float = setting(0.0, least=0, below=1)
    failing_reward: float = setting(-10.0, below=0)
