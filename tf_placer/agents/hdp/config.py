"""Settings of the Hierarchical planner."""

from __future__ import annotations

import dataclasses

from tf_placer import arguments
from tf_placer.agents.presets import OF_PRESET, fill_in
from tf_placer.errors import InputError
from tf_placer.grouper.groups import KINDS, ORDERS

LOSSES = ("reinforce", "ppo", "quantile", "cross_entropy")

# Fixed learning rates of 0.1 and no noise after 500 steps: section 3 of the paper.
PRESETS: dict[str, dict[str, object]] = {
    "ours": {
        "num_groups": 160,
        "group_probability": 0.9995,
        "landmarks": 32,
        "grouper_sharpness": 0.1,
        "start_probability": 0.5,
        "placer_hidden": 64,
        "groups_per_step": 8,
        "groupings": 1,
        "placements": 64,
        "loss": "cross_entropy",
        "incumbent": True,
        "regroup_after": 30,
        "learning_rate": 1e-3,
        "row_rate": 0.1,
        "row_step": 0.3,
        "grouper_learning_rate": 1e-3,
        "standardize": True,
        "normalize_advantage": True,
        "entropy_start": 0.0,
    },
    "paper": {
        "num_groups": 256,
        "group_probability": 0.0,
        "landmarks": 0,
        "grouper_sharpness": 1.0,
        "start_probability": 0.0,
        "placer_hidden": 256,
        "groups_per_step": 1,
        "groupings": 1,
        "placements": 4,
        "loss": "reinforce",
        "incumbent": False,
        "regroup_after": 0,
        "learning_rate": 0.1,
        "row_rate": 0.0,
        "row_step": 0.0,
        "grouper_learning_rate": 0.1,
        "standardize": False,
        "normalize_advantage": False,
        "entropy_start": 0.0,
    },
}


@dataclasses.dataclass(frozen=True)
class HdpConfig:
    """Mirhoseini et al. 2018, "A Hierarchical Model for Device Placement", section 3.

    ``preset="paper"`` gives the paper's values, each named below as (paper: ...). Departures, and why; what each is
    worth is in docs/results/agent_probes.md.

    - groups, group_probability: groups begin as min-cut parts split by slack, of which good plans can be made.
    - num_groups 160 for 256, placer_hidden 64 for 256, groups_per_step 8 for 1: more updates in the same time.
    - placements 64 for 4: elites and standardized advantages need samples.
    - loss: the Placer moves to the best samples and the best plan so far, not up the gradient of the mean reward.
    - learning rates of 1e-3 and (Grouper) 1e-2 for 0.1: the networks do not collapse.
    - row_rate, row_step: the Placer also has logits of each group, which learn as fast as a table without a network.
    - landmarks 32 for 0: parallel branches can be told apart.
    - start_probability for an unbiased Placer: a search begins near the best plan that costs nothing.
    - standardize: advantages are standardized by batch, not compared with a moving average.
    - incumbent: half of the samples change the best plan so far, which the policy imitates.
    - regroup_after: most of those then move units between groups, by the Grouper's logits, which learn from what each
      move gained. One reward for thousands of units that are drawn at once says little of any of them.

    Not settings, so never undone: those in the docstrings of ``HdpLearner`` (one norm for each network's gradient),
    ``Seq2SeqPlacer``, ``unit_features``, ``group_embeddings`` and ``square_root_reward``.

    Attributes:
      preset: "ours" or "paper"; says what the fields are that are not given.
      groups: that the Grouper begins with: ``slack``, min-cut parts split by slack, or ``min_cut``.
      num_groups: G (paper: 256); more where a problem has more kinds of units, by what is legal for them.
      group_probability: how often an untrained Grouper puts a unit into its group of the beginning, and else mostly
        into a neighbor's; 0 leaves it unbiased (paper).
      grouper_hidden: width of the Grouper's hidden layer.
      type_embedding: width of the op-type embedding.
      landmarks: units to which every unit's distance is a feature (paper: 0).
      imitation_steps: Adam steps that fit the Grouper's network to the groups of the beginning (paper: 0).
      imitation_rate: their learning rate.
      grouper_sharpness: factor on the Grouper's last layer before it learns by reward (paper: 1).
      start_probability: how often an untrained Placer chooses each group's device of the plan that it starts
        from; 0 leaves it unbiased (paper).
      placer_hidden: H (paper: 256).
      groups_per_step: that the Placer's LSTMs read and place in one step (paper: 1).
      tanh_constant: C of the bounded logits.
      temperature: T of the bounded logits.
      groupings: m, groupings drawn per update (paper: 1).
      placements: k, placements drawn per grouping (paper: 4).
      loss: ``reinforce`` (paper), ``ppo``, ``quantile`` or ``cross_entropy``, of the placements.
      epochs: optimizer steps on each batch.
      elites: share of the samples that ``quantile`` and ``cross_entropy`` learn from.
      incumbent: as many samples more as a grouping has change the best plan so far (paper: no).
      regroup_after: updates after which most of these move units between groups (``Regrouping``) and not groups
        between devices; 0 for never (paper).
      learning_rate: Adam's, for the Placer (paper: 0.1).
      row_rate: Adam's, for the Placer's logits of each group; 0 for no such logits (paper).
      row_step: with ``cross_entropy`` these logits instead bring each group's probabilities so far of the way to
        the frequencies among the elites, in closed form; 0 for Adam.
      grouper_learning_rate: Adam's, for the Grouper (paper: 0.1).
      gradient_clip: global norm of each network's gradient. One norm for both starves the Placer,
        because the Grouper's loss is a sum over thousands of units.
      standardize: advantages by batch; else a moving average is the baseline (paper).
      baseline_decay: of the moving-average baseline.
      normalize_advantage: divide what is compared with it by a moving estimate of its spread (paper: no).
      entropy_start, entropy_end: the Placer's mean decision entropy, in nats, is steered from one
        to the other; 0 leaves it alone (paper). The end must be above 0.
      entropy_updates: over this many updates.
      entropy_rate: how fast the weight of the entropy in the objective follows.
      noise_amplitude: of the uniform noise on both networks' logits at the start.
      noise_updates: updates until the noise is off.
      valid_only_after: updates after which only placements that run may teach.
      failing_reward: reward of a placement that does not run, below 0.
      excess_penalty: what is taken from it for each share of the bytes that devices cannot hold (paper: 0).
      crossing_penalty: what is taken from a reward for each share of the bytes that cross (paper: 0).
      group_order: the order in which the Placer comes by the groups, one of ``group_order.ORDERS``.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    preset: str = "ours"
    groups: str = "slack"
    num_groups: int = OF_PRESET
    group_probability: float = OF_PRESET
    grouper_hidden: int = 64
    type_embedding: int = 20
    landmarks: int = OF_PRESET
    imitation_steps: int = 0
    imitation_rate: float = 1e-2
    grouper_sharpness: float = OF_PRESET
    start_probability: float = OF_PRESET
    placer_hidden: int = OF_PRESET
    groups_per_step: int = OF_PRESET
    tanh_constant: float = 5.0
    temperature: float = 10.0
    groupings: int = OF_PRESET
    placements: int = OF_PRESET
    loss: str = OF_PRESET
    epochs: int = 1
    elites: float = 0.2
    incumbent: bool = OF_PRESET
    regroup_after: int = OF_PRESET
    learning_rate: float = OF_PRESET
    row_rate: float = OF_PRESET
    row_step: float = OF_PRESET
    grouper_learning_rate: float = OF_PRESET
    gradient_clip: float = 1.0
    standardize: bool = OF_PRESET
    baseline_decay: float = 0.9
    normalize_advantage: bool = OF_PRESET
    entropy_start: float = OF_PRESET
    entropy_end: float = 0.02
    entropy_updates: int = 400
    entropy_rate: float = 0.1
    noise_amplitude: float = 0.1
    noise_updates: int = 500
    valid_only_after: int = 500
    failing_reward: float = -10.0
    excess_penalty: float = 0.0
    crossing_penalty: float = 0.0
    group_order: str = "as_cut"

    def __post_init__(self) -> None:
        fill_in(self, PRESETS)
        for field, values in (("groups", KINDS), ("loss", LOSSES)):
            if getattr(self, field) not in values:
                raise InputError(
                    f"{field} is {arguments.shown(getattr(self, field))}; give {' or '.join(values)}"
                )
        for field in _COUNTS:
            self._keep(field, arguments.whole_number(field, getattr(self, field), 1))
        for field in _COUNTS_OR_NONE:
            self._keep(field, arguments.whole_number(field, getattr(self, field), 0))
        for field, limits in _NUMBERS.items():
            self._keep(field, arguments.number(field, getattr(self, field), finite=True, **limits))
        for field in ("incumbent", "standardize", "normalize_advantage"):
            self._keep(field, arguments.truth(field, getattr(self, field)))
        if self.group_order not in ORDERS:
            raise InputError(
                f"group_order is {arguments.shown(self.group_order)}; give {', '.join(ORDERS[:-1])} or {ORDERS[-1]}"
            )
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


_COUNTS = (
    "num_groups",
    "grouper_hidden",
    "type_embedding",
    "placer_hidden",
    "groups_per_step",
    "groupings",
    "placements",
    "epochs",
)
_COUNTS_OR_NONE = (
    "landmarks",
    "imitation_steps",
    "regroup_after",
    "entropy_updates",
    "noise_updates",
    "valid_only_after",
)
_NUMBERS: dict[str, dict[str, float]] = {
    "imitation_rate": {"least": 0},
    "grouper_sharpness": {"above": 0},
    "start_probability": {"least": 0, "below": 1},
    "tanh_constant": {"above": 0},
    "temperature": {"above": 0},
    "group_probability": {"least": 0, "below": 1},
    "elites": {"above": 0, "below": 1},
    "learning_rate": {"least": 0},
    "row_rate": {"least": 0},
    "row_step": {"least": 0, "most": 1},
    "grouper_learning_rate": {"least": 0},
    "gradient_clip": {"above": 0},
    "baseline_decay": {"least": 0, "most": 1},
    "entropy_start": {"least": 0},
    "entropy_end": {"least": 0},
    "entropy_rate": {"least": 0},
    "noise_amplitude": {"least": 0},
    "failing_reward": {"below": 0},
    "excess_penalty": {"least": 0},
    "crossing_penalty": {"least": 0},
}
