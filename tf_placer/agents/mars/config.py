"""Settings of Mars."""

from __future__ import annotations

import dataclasses

from tf_placer import arguments
from tf_placer.agents.presets import OF_PRESET, fill_in
from tf_placer.errors import InputError
from tf_placer.grouper.groups import KINDS

PRESETS: dict[str, dict[str, object]] = {
    "ours": {
        "num_groups": 160,
        "encoder_width": 32,
        "encoder_goes_on": False,
        "pretrain_iterations": 100,
        "hidden": 64,
        "segment": 64,
        "groups_per_step": 16,
        "start_probability": 0.9,
        "placements": 32,
        "decisions_apart": True,
        "minibatches": 2,
        "entropy": 0.1,
        "learning_rate": 5e-3,
        "standardize": True,
        "elites": 8,
        "failing_reward": -2.0,
    },
    "paper": {
        "num_groups": 0,
        "encoder_width": 256,
        "encoder_goes_on": True,
        "pretrain_iterations": 1000,
        "hidden": 512,
        "segment": 128,
        "groups_per_step": 1,
        "start_probability": 0.0,
        "placements": 10,
        "decisions_apart": False,
        "minibatches": 4,
        "entropy": 1e-3,
        "learning_rate": 3e-4,
        "standardize": False,
        "elites": 0,
        "failing_reward": -10.0,
    },
}


@dataclasses.dataclass(frozen=True)
class MarsConfig:
    """Lan et al. 2021, "Mars: Memory-based Reinforcement Learning for Device Placement".

    ``preset="paper"`` gives the paper's values, each named below as (paper: ...); what we could not find in it is
    marked as a guess. Departures of "ours", each undone by its field:

    - num_groups 160 for 0: decides for min-cut parts split by slack, not unit by unit.
    - encoder_width 32 for 256, hidden 64 for 512, segment 64 for 128, groups_per_step 16 for 1: more updates in the
      same time.
    - pretrain_iterations 100 for 1000: a second instead of minutes.
    - encoder_goes_on: the encoder stays as it was pre-trained, so the graph is read once.
    - start_probability 0.9 for an unbiased placer: a search begins near the best plan that costs nothing.
    - placements 32 for 10, minibatches 2 for 4: standardized advantages need samples.
    - decisions_apart: the ratio of each group's decision is clipped by itself; that of a whole plan is a product over
      groups, and says nothing where there are many.
    - standardize: advantages are relative to the batch, not to a moving average.
    - elites: the placer also moves to the best plans that were ever drawn.
    - entropy 0.1 for 1e-3, learning_rate 5e-3 for 3e-4: it learns in a hundred updates, and goes on to explore.
    - failing_reward -2 for -10: what does not run is bad, and does not drown what does.

    Departures without a setting: units are described by relative quantities and a learned row of their op type, for the
    paper's one-hot types and output shapes, so that weights serve other graphs (``relative_features``); edges are read
    in both directions; rewards are relative to a reference time; devices are embedded by what they are like; and those
    in the docstrings of ``Seq2SeqPlacer`` and ``SegmentSeq2SeqPlacer``.

    Attributes:
      preset: "ours" or "paper"; says what the fields are that are not given.
      groups: what is decided for: ``slack``, min-cut parts split by slack, or ``min_cut``.
      num_groups: most groups; more where a problem has more kinds of units; 0 decides for each unit (paper).
      type_embedding: width of an op type's row.
      encoder_width: H of the GCN (paper: 256).
      encoder_layers: of the GCN (paper: 3).
      encoder_goes_on: the encoder learns by rewards too, with the placer (paper); else it is not changed any more.
      pretrain_iterations: steps of Deep Graph Infomax before the first proposal (paper: 1000); 0 for none, which is the
        paper's ablation.
      pretrain_rate: Adam's, for these.
      weights: file that `train` wrote, whose encoder it begins with, instead of pre-training one; "" for none.
      hidden: width of the placer's LSTMs (paper: 512).
      segment: groups of a segment (paper: 128).
      groups_per_step: that the placer reads and places in one step (paper: 1).
      tanh_constant: C of the bounded logits.
      temperature: T of the bounded logits.
      start_probability: how often an untaught placer chooses each group's device of the plan that it starts from; 0
        leaves it unbiased (paper).
      placements: B, drawn for an update (paper: about 10).
      clip: of PPO's ratios (paper: 0.2).
      decisions_apart: clip the ratio of each decision; else that of the whole plan (paper: a guess).
      epochs: over the placements of an update (paper: a guess).
      minibatches: of an epoch, an optimizer step each (paper: 4).
      entropy: weight of the mean entropy of a decision (paper: 1e-3).
      learning_rate: Adam's (paper: 3e-4).
      gradient_clip: global norm of the gradient (paper: 1).
      standardize: advantages by batch; else a moving average is the baseline (paper).
      baseline_decay: of that average (paper: 0.99).
      elites: best plans of all updates, which the placer also moves to by cross entropy; 0 for none (paper).
      elite_weight: of that.
      failing_reward: reward of a placement that does not run, below 0 (paper: a large penalty).

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    preset: str = "ours"
    groups: str = "slack"
    num_groups: int = OF_PRESET
    type_embedding: int = 16
    encoder_width: int = OF_PRESET
    encoder_layers: int = 3
    encoder_goes_on: bool = OF_PRESET
    pretrain_iterations: int = OF_PRESET
    pretrain_rate: float = 1e-3
    weights: str = ""
    hidden: int = OF_PRESET
    segment: int = OF_PRESET
    groups_per_step: int = OF_PRESET
    tanh_constant: float = 5.0
    temperature: float = 10.0
    start_probability: float = OF_PRESET
    placements: int = OF_PRESET
    clip: float = 0.2
    decisions_apart: bool = OF_PRESET
    epochs: int = 3
    minibatches: int = OF_PRESET
    entropy: float = OF_PRESET
    learning_rate: float = OF_PRESET
    gradient_clip: float = 1.0
    standardize: bool = OF_PRESET
    baseline_decay: float = 0.99
    elites: int = OF_PRESET
    elite_weight: float = 1.0
    failing_reward: float = OF_PRESET

    def __post_init__(self) -> None:
        fill_in(self, PRESETS)
        if self.groups not in KINDS:
            raise InputError(f"groups is {arguments.shown(self.groups)}; give {' or '.join(KINDS)}")
        for field in _COUNTS:
            self._keep(field, arguments.whole_number(field, getattr(self, field), 1))
        for field in _COUNTS_OR_NONE:
            self._keep(field, arguments.whole_number(field, getattr(self, field), 0))
        for field, limits in _NUMBERS.items():
            self._keep(field, arguments.number(field, getattr(self, field), finite=True, **limits))
        arguments.instance_of("weights", self.weights, str, "give the path of a file that `train` wrote")
        for field in ("encoder_goes_on", "decisions_apart", "standardize"):
            self._keep(field, arguments.truth(field, getattr(self, field)))
        if self.hidden % 2:
            raise InputError(
                f"hidden is {self.hidden}; give an even number, half for each direction of the encoder"
            )
        if self.minibatches > self.placements:
            raise InputError(
                f"minibatches is {self.minibatches}; give at most placements, which is {self.placements}"
            )

    def _keep(self, field: str, value: object) -> None:
        """Stores a field as Python's own type."""
        object.__setattr__(self, field, value)


_COUNTS = (
    "type_embedding",
    "encoder_width",
    "encoder_layers",
    "hidden",
    "segment",
    "groups_per_step",
    "placements",
    "epochs",
    "minibatches",
)
_COUNTS_OR_NONE = ("num_groups", "pretrain_iterations", "elites")
_NUMBERS: dict[str, dict[str, float]] = {
    "pretrain_rate": {"least": 0},
    "tanh_constant": {"above": 0},
    "temperature": {"above": 0},
    "start_probability": {"least": 0, "below": 1},
    "clip": {"above": 0},
    "entropy": {"least": 0},
    "learning_rate": {"least": 0},
    "gradient_clip": {"above": 0},
    "baseline_decay": {"least": 0, "most": 1},
    "elite_weight": {"least": 0},
    "failing_reward": {"below": 0},
}
