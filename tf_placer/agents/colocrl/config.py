"""Settings of ColocRL."""

from __future__ import annotations

import dataclasses
import re

from tf_placer import arguments
from tf_placer.agents.presets import OF_PRESET, fill_in
from tf_placer.errors import InputError

# What Keras calls what belongs to one convolution; layers that the papers' workloads repeat.
_LAYERS = (
    r"(?:conv2d|batch_normalization|activation)((?:_\d+)+)/"  # Inception: one number for all three
    r"|/(\w+?)_(?:conv|bn|relu)(?:_\d+)?/"  # ResNet: one name
    r"|((?:max|average)_pooling2d(?:_\d+)*)/|(concatenate(?:_\d+)*)/|(mixed\d+(?:_\d+)*)/"
)
_STEPS = r"(?:^|/)(?:step|combine)/"

PRESETS = {
    "ours": {
        "largest_share": 0.1,
        "max_groups": 256,
        "work_features": True,
        "hidden": 64,
        "start_probability": 0.9,
        "controllers": 1,
        "placements": 64,
        "learning_rate": 2e-3,
        "baseline_starts_failing": False,
        "standardize": True,
        "elite_share": 0.1,
        "entropy_start": 0.3,
        "valid_only_after": 500,
    },
    "paper": {
        "largest_share": 1.0,
        "max_groups": 1024,
        "work_features": False,
        "hidden": 256,
        "start_probability": 0.0,
        "controllers": 20,
        "placements": 8,
        "learning_rate": 0.1,
        "baseline_starts_failing": True,
        "standardize": False,
        "elite_share": 0.0,
        "entropy_start": 0.0,
        "valid_only_after": 5000,
    },
}


@dataclasses.dataclass(frozen=True)
class ColocRlConfig:
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

    max_groups: int = OF_PRESET
    preset: str = "ours"
    colocate: bool = True
    step_pattern: str = _STEPS
    layer_pattern: str = _LAYERS
    largest_share: float = OF_PRESET
    work_features: bool = OF_PRESET
    hidden: int = OF_PRESET
    tanh_constant: float = 5.0
    temperature: float = 10.0
    start_probability: float = OF_PRESET
    controllers: int = OF_PRESET
    placements: int = OF_PRESET
    learning_rate: float = OF_PRESET
    gradient_clip: float = 1.0
    baseline_decay: float = 0.9
    baseline_starts_failing: bool = OF_PRESET
    standardize: bool = OF_PRESET
    elite_share: float = OF_PRESET
    entropy_start: float = OF_PRESET
    entropy_end: float = 0.02
    entropy_updates: int = 400
    entropy_rate: float = 0.1
    valid_only_after: int = OF_PRESET
    failing_reward: float = -10.0

    def __post_init__(self) -> None:
        fill_in(self, PRESETS)
        for field in _COUNTS:
            self._keep(field, arguments.whole_number(field, getattr(self, field), 1))
        for field in _COUNTS_OR_NONE:
            self._keep(field, arguments.whole_number(field, getattr(self, field), 0))
        for field, limits in _NUMBERS.items():
            self._keep(field, arguments.number(field, getattr(self, field), finite=True, **limits))
        for field in _TRUTHS:
            self._keep(field, arguments.truth(field, getattr(self, field)))
        for field in ("step_pattern", "layer_pattern"):
            self._check_pattern(field, getattr(self, field))
        if self.hidden % 2:
            raise InputError(
                f"hidden is {self.hidden}; give an even number, half for each direction of the encoder"
            )
        if self.entropy_start and not self.entropy_end:
            raise InputError(
                f"entropy_end is {self.entropy_end:g}; give a number above 0, which steering divides by, or "
                "entropy_start=0 for none"
            )

    def _keep(self, field: str, value: object) -> None:
        """Stores a field as Python's own type."""
        object.__setattr__(self, field, value)

    @staticmethod
    def _check_pattern(field: str, pattern: object) -> None:
        if pattern == "":
            return
        try:
            re.compile(arguments.text(field, pattern, 'give a regular expression, or "" for none'))
        except re.error as error:
            raise InputError(f"{field} is {pattern!r} ({error}); give a regular expression") from None


_COUNTS = ("max_groups", "hidden", "controllers", "placements")
_COUNTS_OR_NONE = ("entropy_updates", "valid_only_after")
_TRUTHS = ("colocate", "work_features", "baseline_starts_failing", "standardize")
_NUMBERS: dict[str, dict[str, float]] = {
    "largest_share": {"above": 0, "most": 1},
    "tanh_constant": {"above": 0},
    "temperature": {"above": 0},
    "start_probability": {"least": 0, "below": 1},
    "learning_rate": {"least": 0},
    "gradient_clip": {"above": 0},
    "baseline_decay": {"least": 0, "most": 1},
    "elite_share": {"least": 0, "most": 1},
    "entropy_start": {"least": 0},
    "entropy_end": {"least": 0},
    "entropy_rate": {"least": 0},
    "failing_reward": {"below": 0},
}
