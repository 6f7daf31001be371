"""Zero-shot placements: a policy taught on other graphs places this one without any evaluation."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.policy import GoPolicy, committed, go_inputs, go_kind
from tf_placer.agents.weights import WEIGHTS_REMEDY, restore_weights, weights_path
from tf_placer.base import arguments
from tf_placer.base.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.grouper.groups import ordered_groups
from tf_placer.grouper.memory_repair import fitting, repairs
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class GoZeroShotConfig(Settings):
    """Settings of ``go_zero_shot``.

    Attributes:
      weights: file that ``train`` or ``experiments.pretrain`` wrote, for a policy with GO's own settings; "shipped" are
        those that come with tf_placer.
      samples: B, how many placements; the first is the likeliest.
      steps: T, in which the nodes of one are decided.
      temperature: of all but the first.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    weights: str = setting("shipped", remedy=WEIGHTS_REMEDY)
    samples: int = setting(64, least=1)
    steps: int = setting(12, least=1)
    temperature: float = setting(0.5, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        arguments.text("weights", self.weights, f'{WEIGHTS_REMEDY}, or "shipped"')


def go_zero_shot(
    problem: Problem, config: GoZeroShotConfig = GoZeroShotConfig(), seed: int = 0
) -> np.ndarray:
    """Placements of an unseen graph by GO's policy as it was taught (Zhou et al. 2020, section 4.4).

    The likeliest placement, then others that are drawn (``committed``). Where a device holds more than it can, the
    largest units move to where there is room.

    Args:
      problem: what to place, of any size, with any number of devices.
      config: settings.
      seed: of what is drawn.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit, K <= B.

    Raises:
      InputError: ``config.weights`` is no file of weights for such a policy.
    """
    of_policy = GoConfig(keep_probability=0.0, exploration=0.0, weights="")
    policy = GoPolicy(of_policy, seed=0)
    restore_weights(weights_path(config.weights, __file__), go_kind(of_policy), policy)
    nodes = ordered_groups(problem, of_policy.most_nodes)
    inputs = go_inputs(problem, nodes)
    devices = [
        committed(policy, inputs, count, config.steps, tf.constant(temperature), tf.constant([seed, 0x25]))
        for count, temperature in ((1, 0.0), (config.samples - 1, config.temperature))
        if count
    ]
    rows = inputs.placements(tf.concat(devices, axis=0)).numpy()
    certain, likely = repairs(problem)
    return fitting(problem, [certain(likely(row)) for row in rows])


SPEC = MethodSpec(
    name="go_zero_shot",
    kind=Kind.CONSTRUCTIVE,
    summary="GO's policy as it was taught on other graphs, without rewards (Zhou et al. 2020, section 4.4).",
    build=go_zero_shot,
    config=GoZeroShotConfig,
    ignores=("single units of a group", "the simulator's order", "peaks of memory"),
    goes_on=False,
)
