"""What goes into ColocRL's policy when it is called."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.group_embeddings import group_embeddings
from tf_placer.agents.colocrl.groups import ColocatedGroups
from tf_placer.agents.leaning import leaning_choices
from tf_placer.agents.learner import Beginning
from tf_placer.placer.device_scorer import DeviceChoices
from tf_placer.problem.footprint import held_bytes
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
    problem: Problem, groups: ColocatedGroups, config: ColocRlConfig, device_of_group: np.ndarray
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


def start_of(problem: Problem, groups: ColocatedGroups, beginning: Beginning) -> np.ndarray:
    """[G] int32 devices of the plan that is fastest once each group is on one device: where most of its work is.

    Args:
      problem: what is placed.
      groups: of its units.
      beginning: plans, of which the first is taken where none fits as groups, and what times them.
    """
    weight = _share(problem.work_ns()) + _share(problem.resident_bytes + held_bytes(problem))
    devices = []
    for plan in beginning.plans:
        votes = np.zeros((groups.count + 1, problem.num_devices))
        np.add.at(votes, (groups.group_of_unit, plan), weight)
        devices.append(np.where(groups.legal, votes[: groups.count], -1.0).argmax(axis=1))
    runtime_s, fits = beginning.simulate(groups.rows(np.array(devices)))
    best: np.ndarray = devices[int(np.argmin(np.where(fits, runtime_s, np.inf)))].astype(np.int32)
    return best


def _share(amounts: np.ndarray) -> np.ndarray:
    """Each unit's share of the sum; a little for those that have none."""
    return (amounts + 1e-9) / (amounts.sum() + 1e-9 * len(amounts))
