"""Weights of the network that says which moves are worth a simulation."""

from __future__ import annotations

import functools
import json
import pathlib

import numpy as np

_FILE = pathlib.Path(__file__).with_name("edit_weights.json")


@functools.cache
def edit_weights() -> np.ndarray:
    """[W] float32, in the order of tf_placer/ops/cc/edit_scorer.h.

    ``python -m experiments.edit_scorer`` makes them: anew whenever tf_placer/ops/cc/edit_features.cc changes.
    """
    weights: np.ndarray = np.array(json.loads(_FILE.read_text(encoding="utf-8")), np.float32)
    weights.flags.writeable = False
    return weights
