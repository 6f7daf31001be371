"""Settings of REGAL."""

from __future__ import annotations

import dataclasses

from tf_placer import arguments
from tf_placer.agents.presets import OF_PRESET, fill_in

PRESETS: dict[str, dict[str, object]] = {
    "ours": {
        "generations": 4,
        "actions_apart": True,
        "keep_elites": True,
        "mutants": 0.2,
    },
    "paper": {
        "generations": 20,
        "actions_apart": False,
        "keep_elites": False,
        "mutants": 0.1,
    },
}


@dataclasses.dataclass(frozen=True)
class RegalConfig:
    """Paliwal et al. 2020, "Reinforced Genetic Algorithm Learning for Optimizing Computation Graphs".

    ``preset="paper"`` gives the paper's values where they are known to us, named below as (paper: ...). Departures
    (figures: docs/results/agent_probes.md):

    - One policy learns on one problem, within the search, where the paper trains over hundreds of graphs and then
      searches; a trained policy can be given to ``RegalLearner``.
    - actions_apart: every plan that is drawn has an action and a reward of its own, not every run. A run is hundreds of
      evaluations, and its reward alone says little about hundreds of decisions.
    - keep_elites: elites live on in the next run, so that a search does not begin anew every few generations; of a run
      the policy then draws the mutants alone.
    - a moving average is the baseline, where the paper has a network.

    What is tried is faster in the mean with the policy than with uniform keys, but the best plan was not: a policy that
    learns within one search did not pay where we tried it.

    Not settings: keys decide groups of units (min-cut parts split by slack and by legality) and not ops, devices alone
    and not priorities or transfers. The bins of the Beta distributions are ours.

    Attributes:
      population: plans of a generation.
      generations: of a run; where it begins from nothing the policy alone draws the first.
      plain_runs: runs with uniform keys at the beginning, which rewards are relative to.
      parts: of the min cut, each split by slack.
      elites: share of a generation that lives on.
      mutants: share that is drawn anew.
      bias: probability that a child has a key from its elite parent.
      mutation: probability that a child's key is drawn anew, uniformly.
      hidden: width of the network.
      rounds: of messages.
      learning_rate: Adam's.
      gradient_clip: global norm of the gradient.
      entropy_weight: of the mean entropy of a decision.
      actions_apart: see above (paper: no).
      keep_elites: see above (paper: no).
      baseline_decay: of the moving-average baseline of a run's reward.
      preset: "ours" or "paper"; says what the fields are that are not given.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    population: int = 64
    generations: int = OF_PRESET
    plain_runs: int = 1
    parts: int = 64
    elites: float = 0.2
    mutants: float = OF_PRESET
    bias: float = 0.7
    mutation: float = 0.01
    hidden: int = 32
    rounds: int = 3
    learning_rate: float = 5e-3
    gradient_clip: float = 1.0
    entropy_weight: float = 1e-2
    actions_apart: bool = OF_PRESET
    keep_elites: bool = OF_PRESET
    baseline_decay: float = 0.9
    preset: str = "ours"

    def __post_init__(self) -> None:
        fill_in(self, PRESETS)
        for field, (least, most) in _COUNTS.items():
            self._keep(field, arguments.whole_number(field, getattr(self, field), least=least, most=most))
        for field, limits in _NUMBERS.items():
            self._keep(field, arguments.number(field, getattr(self, field), finite=True, **limits))
        for field in ("actions_apart", "keep_elites"):
            self._keep(field, arguments.truth(field, getattr(self, field)))

    def _keep(self, field: str, value: object) -> None:
        """Stores a field as Python's own type."""
        object.__setattr__(self, field, value)

    @property
    def num_elites(self) -> int:
        """Plans of a generation that live on."""
        return max(1, round(self.elites * self.population))


_MOST = 2**20
_COUNTS = {
    "population": (4, _MOST),
    "generations": (1, _MOST),
    "plain_runs": (1, _MOST),
    "parts": (1, _MOST),
    "hidden": (1, 4096),
    "rounds": (0, 64),
}
_NUMBERS: dict[str, dict[str, float]] = {
    "elites": {"least": 0.001, "most": 0.5},
    "mutants": {"least": 0, "most": 0.4},
    "bias": {"least": 0.5, "most": 1},
    "mutation": {"least": 0, "most": 1},
    "learning_rate": {"least": 0},
    "gradient_clip": {"above": 0},
    "entropy_weight": {"least": 0},
    "baseline_decay": {"least": 0, "most": 1},
}
