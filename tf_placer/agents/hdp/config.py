"""Settings of the Hierarchical planner."""

from __future__ import annotations

import dataclasses

from tf_placer import arguments
from tf_placer.agents.unit_groups import KINDS
from tf_placer.errors import InputError


@dataclasses.dataclass(frozen=True)
class HdpConfig:
    """Mirhoseini et al. 2018, "A Hierarchical Model for Device Placement", section 3.

    Departures from the paper's values, and why. ``experiments.hdp_ablation`` undoes each alone; what that gives is in
    docs/results/hdp_ablation.md.

    - num_groups 64 for 256, placer_hidden 64 for 256: more updates in the same time, on small machines.
    - placements 128 for 4: fewer seeds sit on the single device for long.
    - learning_rate 2e-3 for 0.1: the policy does not collapse.
    - grouper_learning_rate 1e-5 for 0.1: the Grouper stays near where the imitation left it, and still learns.
    - landmarks 32 for 0: parallel branches can be told apart.
    - imitation_steps 300 for 0, grouper_sharpness 5 for 1: groups begin as pieces of the program, not uniform.
    - start_probability 0.9 for an unbiased Placer: a search begins at the best single device.
    - normalize_advantage: gradients keep their size while the samples draw closer to each other.
    - entropy_start 0.3 and its kin, for no steering: the policy explores for as long as it should.

    Not settings, so never undone: those in the docstrings of ``HdpLearner`` (one norm for each network's gradient),
    ``Seq2SeqPlacer``, ``unit_features``, ``group_embeddings`` and ``square_root_reward``.

    Attributes:
      groups: that the Grouper begins with: ``slack``, min-cut parts split by slack, or ``min_cut``.
      num_groups: G (paper: 256); more where a problem has more kinds of units, by what is legal for them.
      grouper_hidden: width of the Grouper's hidden layer.
      type_embedding: width of the op-type embedding.
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
      failing_reward: reward of a placement that does not run, below 0.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    groups: str = "slack"
    num_groups: int = 160
    grouper_hidden: int = 64
    type_embedding: int = 20
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
        if self.groups not in KINDS:
            raise InputError(f"groups is {arguments.shown(self.groups)}; give {' or '.join(KINDS)}")
        for field in _COUNTS:
            self._keep(field, arguments.whole_number(field, getattr(self, field), 1))
        for field in _COUNTS_OR_NONE:
            self._keep(field, arguments.whole_number(field, getattr(self, field), 0))
        for field, limits in _NUMBERS.items():
            self._keep(field, arguments.number(field, getattr(self, field), finite=True, **limits))
        self._keep("normalize_advantage", arguments.truth("normalize_advantage", self.normalize_advantage))
        if self.placer_hidden % 2:
            raise InputError(
                f"placer_hidden is {self.placer_hidden}; give an even number, half for each direction of the encoder"
            )
        if self.entropy_start and not self.entropy_end:
            raise InputError(
                f"entropy_end is {self.entropy_end:g}; give a number above 0, which steering divides by, or "
                "entropy_start=0 for none"
            )

    def _keep(self, field: str, value: object) -> None:
        """Stores a field as Python's own type."""
        object.__setattr__(self, field, value)


_COUNTS = ("num_groups", "grouper_hidden", "type_embedding", "placer_hidden", "groupings", "placements")
_COUNTS_OR_NONE = ("landmarks", "imitation_steps", "entropy_updates", "noise_updates", "valid_only_after")
_NUMBERS: dict[str, dict[str, float]] = {
    "imitation_rate": {"least": 0},
    "grouper_sharpness": {"above": 0},
    "start_probability": {"least": 0, "below": 1},
    "tanh_constant": {"above": 0},
    "temperature": {"above": 0},
    "learning_rate": {"least": 0},
    "grouper_learning_rate": {"least": 0},
    "gradient_clip": {"above": 0},
    "baseline_decay": {"least": 0, "most": 1},
    "entropy_start": {"least": 0},
    "entropy_end": {"least": 0},
    "entropy_rate": {"least": 0},
    "noise_amplitude": {"least": 0},
    "failing_reward": {"below": 0},
}
