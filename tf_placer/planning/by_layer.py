"""The plan of whole layers, beside one of single ops or in place of it."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from tf_placer.planners.whole_layers import MOMENT, whole_layers
from tf_placer.planning.outcome import GIVEN, Outcome
from tf_placer.problem.layer_lines import with_units_whole
from tf_placer.problem.layers import layers_of


def in_layers(outcome: Outcome, seed: int) -> Outcome:
    """With a plan of whole layers, made of the one that would be written; a plan that was given stays it."""
    problem = outcome.problem
    layers = with_units_whole(problem, layers_of(problem))
    whole = None
    if outcome.written.name != GIVEN:
        whole = whole_layers(problem, layers, outcome.placement.decisions, seed)
    return dataclasses.replace(outcome, layers=layers, whole=whole)


def beside_layers(outcome: Outcome, seed: int) -> Outcome:
    """With the step time of whole layers beside a plan of single ops, found in a moment.

    There is none where the program has no layers, the plan was given, has one device or the least memory, and after
    Ctrl-C.
    """
    written, search = outcome.written, outcome.search
    if written.name == GIVEN or written.is_single or search.least_memory is not None or search.interrupted:
        return outcome
    with contextlib.suppress(KeyboardInterrupt):  # the plan is there, and counts more
        problem = outcome.problem
        layers = with_units_whole(problem, layers_of(problem))
        if len(np.unique(layers.layer_of_op)) < 2:
            return outcome
        return dataclasses.replace(
            outcome, whole=whole_layers(problem, layers, outcome.placement.decisions, seed, MOMENT)
        )
    return outcome
