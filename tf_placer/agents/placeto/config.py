"""Settings of Placeto."""

from __future__ import annotations

import dataclasses

from tf_placer.method_spec import Settings, setting

EMBED_EVERY = ("step", "episode")
BEGIN = ("plan", "best", "anywhere")
REWARDS = ("drop", "end")


@dataclasses.dataclass(frozen=True)
class PlacetoConfig(Settings):
    """Addanki et al. 2019, "Placeto: Learning Generalizable Device Placement Algorithms", sections 3 and 4.

    ``preset="paper"`` gives every field that is not given the value of the paper and its published code.

    Departures that the preset "ours" makes, each undone by its field:

    - landmarks 16 for 0: parallel branches can be told apart.
    - width 32 for 8, rounds 3 for 8: the code's width is its number of features; fewer rounds take less time.
    - embed_every "episode" for "step": messages pass once for all steps of an episode.
    - device_state: a step sees what each device holds at that moment (as in DOPPLER, arXiv 2505.23131), so that
      nothing of the episode so far is lost although messages pass once.
    - begin "best" for "plan": an episode begins where the best one came.
    - keep_probability 0.9 for 0: an untrained policy leaves most groups where they are.
    - discount 0.5 for 1: a step is to answer for itself more than for what later ones draw.
    - normalize_advantage: gradients keep their size while drops shrink.
    - learning_rate 3e-3 for 1e-3, falling to a tenth.

    Departures without a setting: groups are min-cut parts split by slack and by what is legal (the paper's grouper is
    not published); neighbors and relatives are averaged, not summed, so that weights serve graphs of any size; the
    ancestors and descendants of a group are those of its costliest op, because groups may be in a cycle; its start
    time is that of this op with transfers free, not of the placement; devices are embedded by what they are like
    instead of counted in a layer's width; times are square roots relative to a reference, as all agents here have
    them; what does not run has a reward of its own, for the paper's penalty by excess bytes; episodes of an update
    visit the groups side by side, and placements that they share are evaluated once; a little of each step's
    probability is shared by all legal devices (exploration).

    Attributes:
      parts: of the min cut that the groups are made of, each split by slack.
      landmarks: units to which every group's distance is a feature.
      width: H, of all hidden layers and embeddings (code: as many as there are features, 5 + D).
      rounds: of message passing, k.
      relatives: most ancestors, descendants and parallel groups that a group looks at, of each kind, the nearest in
        start time; 0 for all (paper).
      embed_every: "step", messages pass anew before each step (paper), or "episode".
      device_state: score devices by what they hold at the step, too.
      begin: what an episode begins with: "plan", where the search begins; "best", the fastest so far; "anywhere",
        drawn anew for each.
      keep_probability: how often an untrained policy leaves a group where it is; 0 leaves it unbiased (paper).
      exploration: share of a step's probability that all legal devices have in equal parts; above 0 a policy that is
        sure still proposes something new.
      episodes: B, of an update (code: 4 to 8 workers).
      reward: "drop" of the time at each step, or the time at the "end" alone, where only the last placements are
        evaluated (the code has both).
      discount: of later rewards.
      baseline_episodes: that the turn-based baseline is the mean of (code: 10).
      normalize_advantage: divide by the deviation of the update's.
      learning_rate, learning_rate_end: Adam's, from one to the other.
      learning_rate_updates: over this many updates.
      gradient_clip: global norm of the gradient (code: 1.25).
      entropy, entropy_end: weight of a decision's entropy in the objective, from one to the other.
      entropy_updates: over this many updates.
      failing_reward: reward of a placement that does not run, below 0.
      preset: "ours" or "paper".

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    parts: int = setting(64, least=1)
    landmarks: int = setting(16, paper=0, least=0)
    width: int = setting(32, paper=8, least=1)
    rounds: int = setting(3, paper=8, least=1)
    relatives: int = setting(0, least=0)
    embed_every: str = setting("episode", paper="step", words=EMBED_EVERY)
    device_state: bool = setting(True, paper=False)
    begin: str = setting("best", paper="plan", words=BEGIN)
    keep_probability: float = setting(0.9, paper=0.0, least=0, below=1)
    exploration: float = setting(0.02, least=0, below=1)
    episodes: int = setting(8, least=1)
    reward: str = setting("drop", words=REWARDS)
    discount: float = setting(0.5, paper=1.0, least=0, most=1)
    baseline_episodes: int = setting(10, least=1)
    normalize_advantage: bool = setting(True, paper=False)
    learning_rate: float = setting(3e-3, paper=1e-3, least=0)
    learning_rate_end: float = setting(3e-4, paper=1e-4, least=0)
    learning_rate_updates: int = setting(400, least=0)
    gradient_clip: float = setting(1.25, above=0)
    entropy: float = setting(0.01, least=0)
    entropy_end: float = setting(0.001, least=0)
    entropy_updates: int = setting(400, least=0)
    failing_reward: float = setting(-2.0, below=0)
    preset: str = setting("ours", words=("ours", "paper"))
