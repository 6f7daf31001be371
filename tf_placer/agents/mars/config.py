"""Settings of Mars."""

from __future__ import annotations

import dataclasses

from tf_placer.agents.weights import WEIGHTS_REMEDY
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Settings, setting
from tf_placer.grouper.groups import KINDS


@dataclasses.dataclass(frozen=True)
class MarsConfig(Settings):
    """Lan et al. 2021, "Mars: Memory-based Reinforcement Learning for Device Placement".

    ``preset="paper"`` gives the paper's values, ``paper=`` below; what we could not find in it is
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
      encoder_width: H of the GCN.
      encoder_layers: of the GCN (paper: 3).
      encoder_goes_on: the encoder learns by rewards too, with the placer (paper); else it is not changed any more.
      pretrain_iterations: steps of Deep Graph Infomax before the first proposal; 0 for none, which is the
        paper's ablation.
      pretrain_rate: Adam's, for these.
      weights: file that `train` wrote, whose encoder it begins with, instead of pre-training one; "" for none.
      hidden: width of the placer's LSTMs.
      segment: groups of a segment.
      groups_per_step: that the placer reads and places in one step.
      tanh_constant: C of the bounded logits.
      temperature: T of the bounded logits.
      start_probability: how often an untaught placer chooses each group's device of the plan that it starts from; 0
        leaves it unbiased (paper).
      placements: B, drawn for an update.
      clip: of PPO's ratios (paper: 0.2).
      decisions_apart: clip the ratio of each decision; else that of the whole plan (paper: a guess).
      epochs: over the placements of an update (paper: a guess).
      minibatches: of an epoch, an optimizer step each.
      entropy: weight of the mean entropy of a decision.
      learning_rate: Adam's.
      gradient_clip: global norm of the gradient (paper: 1).
      standardize: advantages by batch; else a moving average is the baseline (paper).
      baseline_decay: of that average (paper: 0.99).
      elites: best plans of all updates, which the placer also moves to by cross entropy; 0 for none (paper).
      elite_weight: of that.
      failing_reward: reward of a placement that does not run, below 0 (paper: a large penalty).

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    preset: str = setting("ours", words=("ours", "paper"))
    groups: str = setting("slack", words=KINDS)
    num_groups: int = setting(160, paper=0, least=0)
    type_embedding: int = setting(16, least=1)
    encoder_width: int = setting(32, paper=256, least=1)
    encoder_layers: int = setting(3, least=1)
    encoder_goes_on: bool = setting(False, paper=True)
    pretrain_iterations: int = setting(100, paper=1000, least=0)
    pretrain_rate: float = setting(1e-3, least=0)
    weights: str = setting("", remedy=WEIGHTS_REMEDY)
    hidden: int = setting(64, paper=512, least=1, even=True)
    segment: int = setting(64, paper=128, least=1)
    groups_per_step: int = setting(16, paper=1, least=1)
    tanh_constant: float = setting(5.0, above=0)
    temperature: float = setting(10.0, above=0)
    start_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    placements: int = setting(32, paper=10, least=1)
    clip: float = setting(0.2, above=0)
    decisions_apart: bool = setting(True, paper=False)
    epochs: int = setting(3, least=1)
    minibatches: int = setting(2, paper=4, least=1)
    entropy: float = setting(0.1, paper=1e-3, least=0)
    learning_rate: float = setting(5e-3, paper=3e-4, least=0)
    gradient_clip: float = setting(1.0, above=0)
    standardize: bool = setting(True, paper=False)
    baseline_decay: float = setting(0.99, least=0, most=1)
    elites: int = setting(8, paper=0, least=0)
    elite_weight: float = setting(1.0, least=0)
    failing_reward: float = setting(-2.0, paper=-10.0, below=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minibatches > self.placements:
            raise InputError(
                f"minibatches is {self.minibatches}; give at most placements, which is {self.placements}"
            )
