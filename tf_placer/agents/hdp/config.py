"""Settings of the Hierarchical planner."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class HdpConfig:
    """Mirhoseini et al. 2018, "A Hierarchical Model for Device Placement", section 3.

    Departures from the paper's values, each with what undoing it alone gave: the best placement and the mean sample
    at the end, as fractions of the single device, on Inception-V3 and k40x2 after 45 s on two cores
    (``experiments.hdp_ablation``, seed 0; as shipped: 0.855, 0.894; the paper's value of every setting: 0.999,
    1.000). One seed: a policy that has not left the single device by then ends near 0.95, 1.00, and as shipped
    seed 0 has done that too, so a row near those figures says little by itself.

    - num_groups 64 for 256: 0.967, 1.001; a third of the updates in that time.
    - placements 128 for 4: 0.844, 0.873, better; but with 4 one of five seeds sat on the single device for a whole
      minute, with 128 none of five for two.
    - placer_hidden 64 for 256: 0.837, 0.889, no worse at a third of the updates. 64 is for small machines only.
    - learning_rate 2e-3 for 0.1: 0.919, 1.000; the policy collapses.
    - grouper_learning_rate 1e-5 for 0.1: 0.968, 1.002. It lets a weight move by about 0.01 in two minutes, so the
      Grouper stays near where the imitation left it; frozen, it gave 0.946, 1.000, and frozen at random
      0.976, 1.001.
    - landmarks 32 for 0: 0.965, 1.000.
    - imitation_steps 300 for 0 (groups uniform at the start): 0.976, 1.000.
    - grouper_sharpness 5 for 1: 0.950, 1.000.
    - start_probability 0.9 for an unbiased Placer: 0.904, 1.001.
    - normalize_advantage: 0.888, 1.018 without.
    - entropy_start 0.3 and its kin, for no steering: 0.946, 1.000.

    Not settings, so never undone: those in the docstrings of ``HdpLearner`` (one norm for each network's gradient),
    ``Seq2SeqPlacer``, ``UnitFeatures``, ``GroupEmbedder`` and ``square_root_reward``.

    Attributes:
      num_groups: G (paper: 256).
      grouper_hidden: width of the Grouper's hidden layer.
      type_embedding: width of the op-type embedding.
      type_vocabulary: most common op types that get a row of their own.
      landmarks: units to which every unit's distance is a feature (paper: 0).
      imitation_steps: Adam steps that fit the Grouper to a min-cut partition first (paper: 0).
      imitation_rate: their learning rate.
      grouper_sharpness: factor on the Grouper's last layer after the imitation; the noise of an
        undecided Grouper hides the Placer's own effect.
      start_probability: how often an untrained Placer chooses each group's device of the plan that it starts
        from; 0 leaves it unbiased (paper).
      placer_hidden: H (paper: 256).
      tanh_constant: C of the bounded logits.
      temperature: T of the bounded logits.
      groupings: m, groupings drawn per update.
      placements: k, placements drawn per grouping (paper: 4).
      learning_rate: Adam's, for the Placer (paper: 0.1).
      grouper_learning_rate: Adam's, for the Grouper (paper: 0.1).
      gradient_clip: global norm of each network's gradient. One norm for both starves the Placer,
        because the Grouper's loss is a sum over thousands of units.
      baseline_decay: of the moving-average baseline.
      normalize_advantage: divide by a moving estimate of its spread (paper: no).
      entropy_start, entropy_end: the Placer's mean decision entropy, in nats, is steered from one
        to the other; 0 leaves it alone (paper). The end must be above 0.
      entropy_updates: over this many updates.
      entropy_rate: how fast the weight of the entropy in the objective follows.
      noise_amplitude: of the uniform noise on both networks' logits at the start.
      noise_updates: updates until the noise is off.
      valid_only_after: updates after which only placements that run may teach.
      failing_reward: reward of a placement that does not run.
    """

    num_groups: int = 64
    grouper_hidden: int = 64
    type_embedding: int = 20
    type_vocabulary: int = 200
    landmarks: int = 32
    imitation_steps: int = 300
    imitation_rate: float = 1e-2
    grouper_sharpness: float = 5.0
    start_probability: float = 0.9
    placer_hidden: int = 64
    tanh_constant: float = 5.0
    temperature: float = 10.0
    groupings: int = 1
    placements: int = 128
    learning_rate: float = 2e-3
    grouper_learning_rate: float = 1e-5
    gradient_clip: float = 1.0
    baseline_decay: float = 0.9
    normalize_advantage: bool = True
    entropy_start: float = 0.3
    entropy_end: float = 0.02
    entropy_updates: int = 400
    entropy_rate: float = 0.1
    noise_amplitude: float = 0.1
    noise_updates: int = 500
    valid_only_after: int = 500
    failing_reward: float = -10.0

    def __post_init__(self) -> None:
        for field in ("num_groups", "groupings", "placements", "placer_hidden", "grouper_hidden"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}; it must be at least 1")
        if not 0 <= self.start_probability < 1:
            raise ValueError(f"start_probability is {self.start_probability}; it must be in [0, 1)")
        if self.entropy_start and self.entropy_end <= 0:
            raise ValueError(
                f"entropy_end is {self.entropy_end}; steering divides by it, so it must be above 0"
            )
