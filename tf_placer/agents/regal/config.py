"""Settings of REGAL."""

from __future__ import annotations

import dataclasses

from tf_placer.method_spec import Settings, setting


@dataclasses.dataclass(frozen=True)
class RegalConfig(Settings):
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
      actions_apart: see above.
      keep_elites: see above.
      baseline_decay: of the moving-average baseline of a run's reward.
      preset: "ours" or "paper"; says what the fields are that are not given.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    population: int = setting(64, least=4, most=2**20)
    generations: int = setting(4, paper=20, least=1, most=2**20)
    plain_runs: int = setting(1, least=1, most=2**20)
    parts: int = setting(64, least=1, most=2**20)
    elites: float = setting(0.2, least=0.001, most=0.5)
    mutants: float = setting(0.2, paper=0.1, least=0, most=0.4)
    bias: float = setting(0.7, least=0.5, most=1)
    mutation: float = setting(0.01, least=0, most=1)
    hidden: int = setting(32, least=1, most=4096)
    rounds: int = setting(3, least=0, most=64)
    learning_rate: float = setting(5e-3, least=0)
    gradient_clip: float = setting(1.0, above=0)
    entropy_weight: float = setting(1e-2, least=0)
    actions_apart: bool = setting(True, paper=False)
    keep_elites: bool = setting(True, paper=False)
    baseline_decay: float = setting(0.9, least=0, most=1)
    preset: str = setting("ours", words=("ours", "paper"))

    @property
    def num_elites(self) -> int:
        """Plans of a generation that live on."""
        return max(1, round(self.elites * self.population))
