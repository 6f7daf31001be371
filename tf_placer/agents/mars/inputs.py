"""What goes into Mars' policy when it is called."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.agents.features import RELATIVE_WIDTH
from tf_placer.agents.graph_inputs import GraphInputs, graph_inputs
from tf_placer.agents.leaning import leaning_choices
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.grouper.groups import Groups, unit_groups
from tf_placer.placer.device_scorer import DeviceChoices
from tf_placer.problem.footprint import held_bytes
from tf_placer.problem.problem import Problem

SUMMARY_WIDTH = RELATIVE_WIDTH + 3


class MarsInputs(NamedTuple):
    """A problem for ``MarsPolicy``.

    Attributes:
      graph: the problem.
      group_of_unit: [U] int32; G for a unit of no group.
      only_device: [U] int32, where such a unit is.
      share_of_unit: [U] float32, of the work of its group; they add up to 1 in each, and are 0 of no group.
      summaries: [G, S] float32: means of the units' relative features by these shares; the groups' own shares of all
        work and of all bytes, as roots; log2(1 + units) / 8.
      choices: devices, what each group may choose, and what it leans to.
    """

    graph: GraphInputs
    group_of_unit: tf.Tensor
    only_device: tf.Tensor
    share_of_unit: tf.Tensor
    summaries: tf.Tensor
    choices: DeviceChoices


def mars_groups(problem: Problem, config: MarsConfig) -> Groups:
    """Groups of units, or each unit by itself, in the order in which the step needs them; none is without units.

    Where no unit has a choice there is one group without units.
    """
    groups = unit_groups(problem, config.num_groups or problem.num_units, config.groups)
    order = np.argsort(groups.places, kind="stable")
    return groups.reordered(order[: max(int(np.isfinite(groups.places).sum()), 1)])


def mars_inputs(
    problem: Problem, groups: Groups, device_of_group: np.ndarray, config: MarsConfig, seed: int
) -> MarsInputs:
    """Describes a problem and where to begin.

    Args:
      problem: what is placed.
      groups: of its units.
      device_of_group: [G] of the plan that is leaned to, legal.
      config: how strongly to lean to the start.
      seed: of what is drawn of the graph.
    """
    graph = graph_inputs(problem, 0, seed)
    work = problem.work_ns() + 1e-6 * max(float(problem.work_ns().sum()), 1.0) / problem.num_units
    share = work / np.append(groups.sums(work), np.inf)[groups.group_of_unit]
    return MarsInputs(
        graph=graph,
        group_of_unit=tf.constant(groups.group_of_unit),
        only_device=tf.constant(groups.only_device),
        share_of_unit=tf.constant(share, tf.float32),
        summaries=tf.constant(_summaries(problem, groups, share, graph.relative_features.numpy())),
        choices=leaning_choices(problem, groups.legal, device_of_group, config),
    )


def _summaries(problem: Problem, groups: Groups, share: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """[G, S]."""
    held = (problem.resident_bytes + held_bytes(problem)).astype(np.float64)
    columns = [
        groups.sums(share[:, np.newaxis] * relative),
        *(
            np.sqrt(groups.sums(amount) / max(float(amount.sum()), 1.0))[:, np.newaxis]
            for amount in (problem.work_ns().astype(np.float64), held)
        ),
        np.log2(1 + groups.sums(np.ones(problem.num_units)))[:, np.newaxis] / 8,
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)
