"""Settings of ColocRL."""

from __future__ import annotations

import dataclasses
import re

from tf_placer.agents.losses import check_steering
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Settings, setting

# Keras' name prefixes of ops that belong to one convolution; layers that the papers' workloads repeat.
_LAYERS = (
    r"(?:conv2d|batch_normalization|activation)((?:_\d+)+)/"  # Inception: one number for all three
    r"|/(\w+?)_(?:conv|bn|relu)(?:_\d+)?/"  # ResNet: one name
    r"|((?:max|average)_pooling2d(?:_\d+)*)/|(concatenate(?:_\d+)*)/|(mixed\d+(?:_\d+)*)/"
)
_STEPS = r"(?:^|/)(?:step|combine)/"
_PATTERN = 'give a regular expression, or "" for none'


@dataclasses.dataclass(frozen=True)
class ColocRlConfig(Settings):
    """Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement Learning", section 3.

    ``preset="paper"`` sets what the paper says, and departs from it no further than this:

    - controllers take turns in one process, with one set of weights, and none learns from a stale one;
    - the reward is relative to a reference time, so the failing signal is, too (``square_root_reward``);
    - more than 1024 groups are folded, where the paper has at most 280;
    - the width of the LSTMs is a guess: the paper does not say.

    ``preset="ours"``, the default, departs further. docs/results/colocrl_groups.md says what all of it together gives;
    none has been undone alone.

    - largest_share 0.1 for 1: a graph with one sink, such as an inference step, does not end as one group, nor do the
      first convolutions of Inception-V3, 29 % of its work;
    - max_groups 256: a decoder's steps are what an update takes;
    - work_features: the policy sees times, memory and slack of a group;
    - hidden 64 for 256: more updates in the same time;
    - start_probability 0.9 for an unbiased decoder: a search begins at the best plan that costs nothing;
    - controllers 1 and placements 64 for 20 and 8: one process has one batch;
    - learning_rate 2e-3 for 0.1: the policy does not collapse;
    - standardize: the advantage is the deviation from the batch's own mean, not from the baseline;
    - elite_share 0.1: the policy also moves to the best of each batch;
    - entropy_start 0.3 for no steering: the policy explores for as long as it should.

    Attributes:
      max_groups: most groups; what the rules leave more of is folded by min cut.
      preset: "ours" or "paper"; says what the fields are that are not given.
      colocate: the three rules decide the groups; without them only the min cut does.
      step_pattern: where the name scope of one step of an unrolled layer ends (``unrolled_calls``); "" for none.
      layer_pattern: names of one layer capture the same (``name_scope``); "" for none.
      largest_share: share of all work that the rule of the only reader may bring together; where a group has more,
        all are kept below.
      work_features: groups' share of work and of memory, levels and slack are in their embeddings.
      hidden: H.
      tanh_constant: C of the bounded logits.
      temperature: T of the bounded logits.
      start_probability: how often an untrained policy chooses each group's device of the plan that it starts from; 0
        leaves it unbiased.
      controllers: that take turns, each with a baseline of its own.
      placements: K, that a controller draws for an update: its workers.
      learning_rate: Adam's.
      gradient_clip: global norm of the gradient.
      baseline_decay: of the moving averages.
      baseline_starts_failing: baselines begin at the failing signal, else at a controller's first mean.
      standardize: advantages are relative to the batch, and baselines only kept.
      elite_share: share of a batch that the policy also moves to, by cross entropy; 0 for none.
      entropy_start, entropy_end: the mean entropy of a decision, in nats, is steered from one to the other; a start
        of 0 leaves it alone.
      entropy_updates: over this many updates.
      entropy_rate: how fast the weight of the entropy in the objective follows.
      valid_only_after: updates after which a placement that fails does not teach.
      failing_reward: the failing signal, below 0: reward of a placement that fails.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    max_groups: int = setting(256, paper=1024, least=1)
    preset: str = setting("ours", words=("ours", "paper"))
    colocate: bool = setting(True)
    step_pattern: str = setting(_STEPS, remedy=_PATTERN)
    layer_pattern: str = setting(_LAYERS, remedy=_PATTERN)
    largest_share: float = setting(0.1, paper=1.0, above=0, most=1)
    work_features: bool = setting(True, paper=False)
    hidden: int = setting(64, paper=256, least=1, even=True)
    tanh_constant: float = setting(5.0, above=0)
    temperature: float = setting(10.0, above=0)
    start_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    controllers: int = setting(1, paper=20, least=1)
    placements: int = setting(64, paper=8, least=1)
    learning_rate: float = setting(2e-3, paper=0.1, least=0)
    gradient_clip: float = setting(1.0, above=0)
    baseline_decay: float = setting(0.9, least=0, most=1)
    baseline_starts_failing: bool = setting(False, paper=True)
    standardize: bool = setting(True, paper=False)
    elite_share: float = setting(0.1, paper=0.0, least=0, most=1)
    entropy_start: float = setting(0.3, paper=0.0, least=0)
    entropy_end: float = setting(0.02, least=0)
    entropy_updates: int = setting(400, least=0)
    entropy_rate: float = setting(0.1, least=0)
    valid_only_after: int = setting(500, paper=5000, least=0)
    failing_reward: float = setting(-10.0, below=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steering(self.entropy_start, self.entropy_end)
        for field in ("step_pattern", "layer_pattern"):
            pattern = getattr(self, field)
            try:
                re.compile(pattern)
            except re.error as error:
                raise InputError(f"{field} is {pattern!r} ({error}); give a regular expression") from None
