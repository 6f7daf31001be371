"""Settings of Post."""

from __future__ import annotations

import dataclasses

from tf_placer.method_spec import Settings, setting


@dataclasses.dataclass(frozen=True)
class PostConfig(Settings):
    """Gao, Chen & Li 2018, "Post: Device Placement with Cross-Entropy Minimization and Proximal Policy Optimization".

    ``preset="paper"`` gives the paper's values, ``paper=`` below; we could not check
    them against its text. Departures, and why (figures: docs/results/agent_probes.md):

    - samples 128 for 10: the simulator takes batches, and five elites of fifty soon agree. With all of the paper's
      values a search of 20,000 evaluations ended where it began.
    - cross_every 1 for 5, smoothing 0.15 for 1: many small cross-entropy steps instead of few whole ones.
    - epochs 3 for 10, learning_rate 0.1 for 1: larger steps learn sooner and end worse.
    - clip 0.2 of each decision's ratio for none, kl_weight 0 for 1 with kl_target 0.03: the ratio of a whole plan is a
      product over groups, and says nothing where there are many.
    - normalize_advantage: steps keep their size while the samples draw closer to each other.
    - levels 4 for 1: where the table has converged the search goes on with finer groups near the best plan.

    Not settings: groups are min-cut parts split by slack and by legality, where the paper has others; rewards
    are square roots of relative times; where a device cannot hold what it is given, what has to go is moved
    (``GroupedPlans``), which the policy sees as part of the machine.

    Attributes:
      samples: K, plans of a batch, each followed by PPO steps.
      parts: of the min cut at the coarsest level, each split by slack.
      levels: of coarseness; each has twice the parts of the one before. With one the table stays when it has converged.
      epochs: PPO steps on each batch; 0 leaves cross-entropy alone.
      learning_rate: of the plain gradient steps.
      clip: of the ratios; 0 for none (paper).
      decisions_apart: clip the ratio of each group's decision; else that of the whole plan (paper).
      kl_weight: of the divergence from the policy that drew, at the start.
      kl_target: divergence that the weight is adapted to; 0 keeps the weight.
      entropy_weight: of the mean entropy of a decision (paper: 0).
      baseline_decay: of the moving-average baseline.
      normalize_advantage: divide by a moving estimate of its spread.
      cross_every: batches between cross-entropy steps, which look at all of them; 0 for none.
      elites: share of the samples that the table moves to (paper: 0.1).
      smoothing: how far it moves, 1 all the way (paper).
      exploration: share of the uniform distribution mixed in after each cross-entropy step.
      exploration_updates: batches over which it fades to 0.
      failing_reward: reward of a placement that does not run, below 0.
      preset: "ours" or "paper"; says what the fields are that are not given.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    samples: int = setting(128, paper=10, least=2, most=2**20)
    parts: int = setting(64, least=1, most=2**20)
    levels: int = setting(4, paper=1, least=1, most=16)
    epochs: int = setting(3, paper=10, least=0, most=2**20)
    learning_rate: float = setting(0.1, paper=1.0, least=0)
    clip: float = setting(0.2, paper=0.0, least=0)
    decisions_apart: bool = setting(True, paper=False)
    kl_weight: float = setting(0.0, paper=1.0, least=0)
    kl_target: float = setting(0.0, paper=0.03, least=0)
    entropy_weight: float = setting(0.0, least=0)
    baseline_decay: float = setting(0.9, least=0, most=1)
    normalize_advantage: bool = setting(True, paper=False)
    cross_every: int = setting(1, paper=5, least=0, most=2**20)
    elites: float = setting(0.1, least=0.001, most=1)
    smoothing: float = setting(0.15, paper=1.0, least=0, most=1)
    exploration: float = setting(0.0, paper=0.1, least=0, most=1)
    exploration_updates: int = setting(500, least=0, most=1073741824)
    failing_reward: float = setting(-10.0, below=0)
    preset: str = setting("ours", words=("ours", "paper"))
