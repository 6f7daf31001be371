"""What goes into ColocRL's policy when it is called."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.group_embeddings import group_embeddings
from tf_placer.agents.leaning import leaning_choices
from tf_placer.grouper.groups import Groups
from tf_placer.grouper.rules import tied_by_rules, tied_groups
from tf_placer.placer.device_scorer import DeviceChoices
from tf_placer.problem.problem import Problem


class ColocRlInputs(NamedTuple):
    """A problem for ``ColocRlPolicy``.

    Attributes:
      embeddings: [G, F] float32.
      group_of_unit: [U] int32; G for a unit of no group.
      only_device: [U] int32, where such a unit is.
      choices: devices, what each group may choose, and what it leans to.
    """

    embeddings: tf.Tensor
    group_of_unit: tf.Tensor
    only_device: tf.Tensor
    choices: DeviceChoices


def colocrl_inputs(
    problem: Problem, groups: Groups, config: ColocRlConfig, device_of_group: np.ndarray
) -> ColocRlInputs:
    """Describes a problem and where to begin.

    Args:
      problem: what is placed.
      groups: of its units.
      config: what is seen, and how strongly to lean to the start.
      device_of_group: [G] the start, legal.
    """
    width = max(config.max_groups, groups.count)
    return ColocRlInputs(
        embeddings=tf.constant(group_embeddings(problem, groups, width, config.work_features)),
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        choices=leaning_choices(problem, groups.legal, device_of_group, config),
    )


def colocated_groups(problem: Problem, config: ColocRlConfig) -> Groups:
    """Groups the units by the configuration's rules; each unit by itself without them, as far as there are groups."""
    tied = np.arange(problem.num_units)
    if config.colocate:
        tied = tied_by_rules(problem, config.step_pattern, config.layer_pattern, config.largest_share)
    return tied_groups(problem, tied, config.max_groups)
