"""Settings of the Hierarchical planner."""

from __future__ import annotations

import dataclasses

from tf_placer.agents.losses import check_steering
from tf_placer.base.method_spec import Settings, setting
from tf_placer.grouper.groups import KINDS, ORDERS

LOSSES = ("reinforce", "ppo", "quantile", "cross_entropy")


@dataclasses.dataclass(frozen=True)
class HdpConfig(Settings):
    """Mirhoseini et al. 2018, "A Hierarchical Model for Device Placement", section 3.

    ``preset="paper"`` gives the paper's values, ``paper=`` below. Departures, and why; what each is worth is in
    docs/results/agent_probes.md.

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
      num_groups: G; more where a problem has more kinds of units, by what is legal for them.
      group_probability: how often an untrained Grouper puts a unit into its group of the beginning, and else mostly
        into a neighbor's; 0 leaves it unbiased (paper).
      grouper_hidden: width of the Grouper's hidden layer.
      type_embedding: width of the op-type embedding.
      landmarks: units to which every unit's distance is a feature.
      grouper_sharpness: factor on the Grouper's last layer before it learns by reward.
      start_probability: how often an untrained Placer chooses each group's device of the plan that it starts
        from; 0 leaves it unbiased (paper).
      placer_hidden: H.
      groups_per_step: that the Placer's LSTMs read and place in one step.
      tanh_constant: C of the bounded logits.
      temperature: T of the bounded logits.
      groupings: m, groupings drawn per update (paper: 1).
      placements: k, placements drawn per grouping.
      loss: ``reinforce`` (paper), ``ppo``, ``quantile`` or ``cross_entropy``, of the placements.
      epochs: optimizer steps on each batch.
      elites: share of the samples that ``quantile`` and ``cross_entropy`` learn from.
      incumbent: as many samples more as a grouping has change the best plan so far.
      regroup_after: updates after which most of these move units between groups (``Regrouping``) and not groups
        between devices; 0 for never (paper).
      learning_rate: Adam's, for the Placer; it is fixed (paper).
      row_rate: Adam's, for the Placer's logits of each group; 0 for no such logits (paper).
      row_step: with ``cross_entropy`` these logits instead bring each group's probabilities so far of the way to
        the frequencies among the elites, in closed form; 0 for Adam.
      grouper_learning_rate: Adam's, for the Grouper.
      gradient_clip: global norm of each network's gradient. One norm for both starves the Placer,
        because the Grouper's loss is a sum over thousands of units.
      standardize: advantages by batch; else a moving average is the baseline (paper).
      baseline_decay: of the moving-average baseline.
      normalize_advantage: divide what is compared with it by a moving estimate of its spread.
      entropy_start, entropy_end: the Placer's mean decision entropy, in nats, is steered from one
        to the other; 0 leaves it alone (paper). The end must be above 0.
      entropy_updates: over this many updates.
      entropy_rate: how fast the weight of the entropy in the objective follows.
      noise_amplitude: of the uniform noise on both networks' logits at the start.
      noise_updates: updates until the noise is off.
      valid_only_after: updates after which only placements that run may teach.
      failing_reward: reward of a placement that does not run, below 0.
      group_order: the order in which the Placer comes by the groups, one of ``group_order.ORDERS``.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    preset: str = setting("ours", words=("ours", "paper"))
    groups: str = setting("slack", words=KINDS)
    num_groups: int = setting(160, paper=256, least=1)
    group_probability: float = setting(0.9995, paper=0.0, least=0, below=1)
    grouper_hidden: int = setting(64, least=1)
    type_embedding: int = setting(20, least=1)
    landmarks: int = setting(32, paper=0, least=0)
    grouper_sharpness: float = setting(0.1, paper=1.0, above=0)
    start_probability: float = setting(0.5, paper=0.0, least=0, below=1)
    placer_hidden: int = setting(64, paper=256, least=1, even=True)
    groups_per_step: int = setting(8, paper=1, least=1)
    tanh_constant: float = setting(5.0, above=0)
    temperature: float = setting(10.0, above=0)
    groupings: int = setting(1, least=1)
    placements: int = setting(64, paper=4, least=1)
    loss: str = setting("cross_entropy", paper="reinforce", words=LOSSES)
    epochs: int = setting(1, least=1)
    elites: float = setting(0.2, above=0, below=1)
    incumbent: bool = setting(True, paper=False)
    regroup_after: int = setting(30, paper=0, least=0)
    learning_rate: float = setting(1e-3, paper=0.1, least=0)
    row_rate: float = setting(0.1, paper=0.0, least=0)
    row_step: float = setting(0.3, paper=0.0, least=0, most=1)
    grouper_learning_rate: float = setting(1e-3, paper=0.1, least=0)
    gradient_clip: float = setting(1.0, above=0)
    standardize: bool = setting(True, paper=False)
    baseline_decay: float = setting(0.9, least=0, most=1)
    normalize_advantage: bool = setting(True, paper=False)
    entropy_start: float = setting(0.0, least=0)
    entropy_end: float = setting(0.02, least=0)
    entropy_updates: int = setting(400, least=0)
    entropy_rate: float = setting(0.1, least=0)
    noise_amplitude: float = setting(0.1, least=0)
    noise_updates: int = setting(500, least=0)
    valid_only_after: int = setting(500, least=0)
    failing_reward: float = setting(-10.0, below=0)
    group_order: str = setting("as_cut", words=ORDERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steering(self.entropy_start, self.entropy_end)
