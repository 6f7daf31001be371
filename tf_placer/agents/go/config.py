"""Settings of GO."""

from __future__ import annotations

import dataclasses

from tf_placer.agents.weights import WEIGHTS_REMEDY
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Settings, setting
from tf_placer.grouper.joint_plans import DEVICES, TASKS
from tf_placer.networks.segments import MODULATIONS

GRANULARITIES = ("groups", "units")
BEGIN = ("best", "plan", "nothing")
_ONE_TASK = frozenset(tasks for tasks in TASKS if "," not in tasks)


@dataclasses.dataclass(frozen=True)
class GoConfig(Settings):
    """Zhou et al. 2020, "Transferable Graph Optimizers for ML Compilers" (GO), sections 3 and 4.

    ``preset="paper"`` gives the paper's values, ``paper=`` below, as far as they are known and can
    work; we could not check them against its text. One of Adam's steps at the printed learning rate of 0.5 is longer
    than the weights are, and what its entropy weight of 0.5 multiplies is not said: learning_rate 1e-4, entropy 0.01,
    gradient_clip 0.5, passes 3 and segment 256 are those of a published reproduction.

    Departures that the preset "ours" makes, each undone by its field:

    - granularity "groups" for "units": a device for each of about 160 groups, min-cut parts split by slack. A reward
      for one decision of 160 says more than for one of thousands.
    - begin "best" for "nothing": refinement goes on from the best placement so far, which the first pass sees as later
      passes see the one before.
    - keep_probability 0.985 for 0: an untrained policy leaves most nodes where they are.
    - exploration 0.005 for 0: a policy that is sure still proposes something new.
    - passes 1 for 3: the best placement has been refined before.
    - device_state: a decision also sees what each device holds, and what of its neighbors, so that devices that are
      alike are told apart by it.
    - standardize: advantages are standardized by batch, not compared with the mean of all earlier trials.
    - elite_share 0.1 for 0: the best samples of a batch are also imitated.
    - graph_width 32 for 128, width 32 for 64, two heads of 16 for three of 25, inner_width 64 for 256, segment 64 for
      256; rollouts 32 for 800, one minibatch for 40, epochs 3 for 20: more updates in the same time.
    - learning_rate 3e-3 for 1e-4; failing_reward -2 for -10.

    Departures without a setting: what a node is like is relative to its step (``relative_features``), where the paper
    has shapes and numbers of neighbors; devices are scored by what they are like, for a softmax of fixed width; PPO
    clips each decision's ratio by itself, because that of thousands together leaves the clip's range at once; rewards
    are relative to a reference time; those in the docstrings of ``GraphSage`` and ``SegmentAttention``.

    Further tasks begin where nothing is decided, as TensorFlow by itself: no order of ready ops, and no clusters.

    Attributes:
      tasks: what is decided, one of ``TASKS``; what is not stays as it begins, without an order or without clusters.
      turn_updates: updates that a task has to itself, the others as they are in the best of all so far, before the next
        one's turn, and after the last the first again; 0 decides all tasks in every update.
      levels: K, that priorities and fusion priorities have (20 in a published reproduction).
      granularity: what is decided one by one: "units" (paper), or "groups" of them.
      num_groups: most groups.
      type_embedding: width of the op-type embedding.
      graph_width: of the graph embedding.
      graph_layers: of GraphSAGE.
      width: H, of the attention layers.
      layers: of attention.
      heads, head_width, inner_width: of each of them.
      segment: S, how many nodes attend to each other and to as many before.
      modulation: how the graph as a whole changes each layer, one of ``MODULATIONS`` (paper: "product").
      passes: T, of refinement; all of them are drawn and have a part in the probability.
      device_state: score devices by what they hold, too.
      begin: what the first pass sees: the "best" placement so far, the "plan" that the search begins with, or
        "nothing" (paper).
      keep_probability: how often an untrained policy leaves a node where the pass before, or what was begun with, had
        it; 0 leaves it unbiased (paper).
      exploration: share of each decision's probability that all legal devices have in equal parts.
      rollouts: B, placements of an update.
      minibatches: that they are split into for PPO's steps; divides them.
      epochs: how often each sample teaches.
      clip: of PPO's ratios (paper: 0.2).
      learning_rate: Adam's (paper: 0.5 as printed, which cannot be).
      gradient_clip: global norm of the gradient.
      entropy: weight of the mean entropy of a decision (paper: 0.5 as printed).
      standardize: advantages by batch; else the mean of all earlier trials is the baseline (paper).
      elite_share: share of each batch's samples that the policy also imitates.
      failing_reward: reward of a placement that does not run, below 0.
      weights: file that `train` wrote, whose weights it begins with, "shipped" for those that come with tf_placer, or
        "" for new ones. With weights the first placements are made from nothing (``committed``), and refinement begins
        with the best of them; an order and fusion, too, where the file is of a policy for the same tasks and levels.
        The method's row in the table has "shipped", a preset "".
      preset: "ours" or "paper"; says what the fields are that are not given.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    tasks: str = setting(DEVICES, words=TASKS)
    turn_updates: int = setting(0, least=0)
    levels: int = setting(8, paper=20, least=2)
    granularity: str = setting("groups", paper="units", words=GRANULARITIES)
    num_groups: int = setting(160, least=1)
    type_embedding: int = setting(16, least=1)
    graph_width: int = setting(32, paper=128, least=1)
    graph_layers: int = setting(2, least=1)
    width: int = setting(32, paper=64, least=1)
    layers: int = setting(2, least=1)
    heads: int = setting(2, paper=3, least=1)
    head_width: int = setting(16, paper=25, least=1)
    inner_width: int = setting(64, paper=256, least=1)
    segment: int = setting(64, paper=256, least=1)
    modulation: str = setting("product", words=MODULATIONS)
    passes: int = setting(1, paper=3, least=1)
    device_state: bool = setting(True, paper=False)
    begin: str = setting("best", paper="nothing", words=BEGIN)
    keep_probability: float = setting(0.985, paper=0.0, least=0, below=1)
    exploration: float = setting(0.005, paper=0.0, least=0, below=1)
    rollouts: int = setting(32, paper=800, least=1)
    minibatches: int = setting(1, paper=40, least=1)
    epochs: int = setting(3, paper=20, least=1)
    clip: float = setting(0.2, above=0)
    learning_rate: float = setting(3e-3, paper=1e-4, least=0)
    gradient_clip: float = setting(0.5, above=0)
    entropy: float = setting(0.01, least=0)
    standardize: bool = setting(True, paper=False)
    elite_share: float = setting(0.1, paper=0.0, least=0, most=1)
    failing_reward: float = setting(-2.0, paper=-10.0, below=0)
    weights: str = setting("", remedy=WEIGHTS_REMEDY)
    preset: str = setting("ours", words=("ours", "paper"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rollouts % self.minibatches:
            raise InputError(
                f"minibatches is {self.minibatches}; give a divisor of rollouts, which is {self.rollouts}"
            )
        if self.turn_updates and (self.tasks in _ONE_TASK or self.begin != "best"):
            raise InputError(
                f"turn_updates is {self.turn_updates}, tasks is {self.tasks} and begin is {self.begin}; tasks take "
                "turns where there are several, and begin is best: else leave turn_updates at 0"
            )

    @property
    def most_nodes(self) -> int | None:
        """Limit on the number of nodes (``ordered_groups``); None where each unit is one."""
        return self.num_groups if self.granularity == "groups" else None
