"""Settings of Post."""

from __future__ import annotations

import dataclasses

from tf_placer import arguments
from tf_placer.agents.presets import OF_PRESET, fill_in

PRESETS: dict[str, dict[str, object]] = {
    "ours": {
        "samples": 128,
        "levels": 4,
        "epochs": 3,
        "learning_rate": 0.1,
        "clip": 0.2,
        "decisions_apart": True,
        "kl_weight": 0.0,
        "kl_target": 0.0,
        "normalize_advantage": True,
        "cross_every": 1,
        "smoothing": 0.15,
        "exploration": 0.0,
    },
    "paper": {
        "samples": 10,
        "levels": 1,
        "epochs": 10,
        "learning_rate": 1.0,
        "clip": 0.0,
        "decisions_apart": False,
        "kl_weight": 1.0,
        "kl_target": 0.03,
        "normalize_advantage": False,
        "cross_every": 5,
        "smoothing": 1.0,
        "exploration": 0.1,
    },
}


@dataclasses.dataclass(frozen=True)
class PostConfig:
    """Gao, Chen & Li 2018, "Post: Device Placement with Cross-Entropy Minimization and Proximal Policy Optimization".

    ``preset="paper"`` gives the paper's values, each named below as (paper: ...); we could not check
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
      epochs: PPO steps on each batch (paper: 10); 0 leaves cross-entropy alone.
      learning_rate: of the plain gradient steps (paper: 1).
      clip: of the ratios; 0 for none (paper).
      decisions_apart: clip the ratio of each group's decision; else that of the whole plan (paper).
      kl_weight: of the divergence from the policy that drew, at the start (paper: 1).
      kl_target: divergence that the weight is adapted to; 0 keeps the weight (paper: 0.03).
      entropy_weight: of the mean entropy of a decision (paper: 0).
      baseline_decay: of the moving-average baseline.
      normalize_advantage: divide by a moving estimate of its spread (paper: no).
      cross_every: batches between cross-entropy steps, which look at all of them (paper: 5); 0 for none.
      elites: share of the samples that the table moves to (paper: 0.1).
      smoothing: how far it moves, 1 all the way (paper).
      exploration: share of the uniform distribution mixed in after each cross-entropy step (paper: 0.1).
      exploration_updates: batches over which it fades to 0.
      failing_reward: reward of a placement that does not run, below 0.
      preset: "ours" or "paper"; says what the fields are that are not given.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    samples: int = OF_PRESET
    parts: int = 64
    levels: int = OF_PRESET
    epochs: int = OF_PRESET
    learning_rate: float = OF_PRESET
    clip: float = OF_PRESET
    decisions_apart: bool = OF_PRESET
    kl_weight: float = OF_PRESET
    kl_target: float = OF_PRESET
    entropy_weight: float = 0.0
    baseline_decay: float = 0.9
    normalize_advantage: bool = OF_PRESET
    cross_every: int = OF_PRESET
    elites: float = 0.1
    smoothing: float = OF_PRESET
    exploration: float = OF_PRESET
    exploration_updates: int = 500
    failing_reward: float = -10.0
    preset: str = "ours"

    def __post_init__(self) -> None:
        fill_in(self, PRESETS)
        for field, (least, most) in _COUNTS.items():
            self._keep(field, arguments.whole_number(field, getattr(self, field), least=least, most=most))
        for field, limits in _NUMBERS.items():
            self._keep(field, arguments.number(field, getattr(self, field), finite=True, **limits))
        for field in ("decisions_apart", "normalize_advantage"):
            self._keep(field, arguments.truth(field, getattr(self, field)))

    def _keep(self, field: str, value: object) -> None:
        """Stores a field as Python's own type."""
        object.__setattr__(self, field, value)


_MOST = 2**20
_COUNTS = {
    "samples": (2, _MOST),
    "parts": (1, _MOST),
    "levels": (1, 16),
    "epochs": (0, _MOST),
    "cross_every": (0, _MOST),
    "exploration_updates": (0, 2**30),
}
_NUMBERS: dict[str, dict[str, float]] = {
    "learning_rate": {"least": 0},
    "clip": {"least": 0},
    "kl_weight": {"least": 0},
    "kl_target": {"least": 0},
    "entropy_weight": {"least": 0},
    "baseline_decay": {"least": 0, "most": 1},
    "elites": {"least": 0.001, "most": 1},
    "smoothing": {"least": 0, "most": 1},
    "exploration": {"least": 0, "most": 1},
    "failing_reward": {"below": 0},
}
