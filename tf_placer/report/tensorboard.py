"""An outcome as a TensorBoard run: how each method got there, the layers, the plan and the placed graph."""

from __future__ import annotations

import json
import math
import pathlib
import time
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams
from tensorboard.summary import Writer

from tf_placer.files import replacing
from tf_placer.planning.outcome import Outcome, Timed
from tf_placer.problem.layers import layers_of
from tf_placer.problem.placement import Placement
from tf_placer.report.files import summary
from tf_placer.report.text import LAYER_COLUMNS, layer_cells
from tf_placer.rewrite.rewrite import apply_placement
from tf_placer.search import methods
from tf_placer.search.result import SearchResult

PLAN = "plan"
SIMULATED_MS, MEASURED_MS = "step/simulated_ms", "step/measured_ms"
BY_EVALUATIONS, BY_MILLISECONDS = "by evaluations", "by milliseconds of search"
_MOST_LAYERS = 200


def write_tensorboard(outcome: Outcome, folder: pathlib.Path) -> None:
    """Writes a run for each method, with its curves, and the run ``plan``, in place of those of an earlier search.

    Raises:
      InputError: the folder cannot be written to.
    """
    names = (*(candidate.name for candidate in outcome.candidates), *methods.names(), PLAN)
    with replacing(folder, tuple(dict.fromkeys(names))) as unfinished:
        for candidate in outcome.candidates:
            if candidate.search is not None:
                _write_curves(candidate.search, unfinished / candidate.name)
                _write_settings(candidate, candidate.search, unfinished / candidate.name)
        _write_plan(outcome, unfinished / PLAN)


def _write_curves(result: SearchResult, folder: pathlib.Path) -> None:
    """The best and the mean step of each round; its wall time is the search's, so that RELATIVE shows seconds."""
    began_s = time.time() - max((entry.elapsed_s for entry in result.history), default=0.0)
    writer = Writer(str(folder))
    for entry in result.history:
        for tag, seconds in (("best_ms", entry.best_s), ("mean_ms", entry.mean_s)):
            if math.isnan(seconds):
                continue
            for axis, step in (
                (BY_EVALUATIONS, entry.evaluations),
                (BY_MILLISECONDS, round(1e3 * entry.elapsed_s)),
            ):
                writer.add_scalar(f"{axis}/{tag}", 1e3 * seconds, step, wall_time=began_s + entry.elapsed_s)
    writer.close()


def _write_settings(candidate: Timed, result: SearchResult, folder: pathlib.Path) -> None:
    """The method's settings as hyperparameters, and its step time as what they are held against (the HPARAMS tab).

    A file of its own: the writer of the curves takes numbers alone.
    """
    settings = {name: _hyperparameter(value) for name, value in result.settings.items()}
    cluster = result.placement.problem.cluster.name
    writer = tf.summary.create_file_writer(str(folder), filename_suffix=".hparams")
    with writer.as_default(step=0):
        hparams.hparams({**settings, "method": candidate.name, "seed": result.seed, "cluster": cluster})
        for tag, seconds in ((SIMULATED_MS, candidate.simulated_s), (MEASURED_MS, candidate.measured_s)):
            if seconds is not None:
                tf.summary.scalar(tag, 1e3 * seconds)
    writer.close()


def _hyperparameter(value: Any) -> bool | float | str:
    """What the tab can show: it has truth values, numbers and texts."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def _write_plan(outcome: Outcome, folder: pathlib.Path) -> None:
    placement = outcome.placement
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default(step=0):
        tf.summary.text("layers", layer_tree(placement))
        tf.summary.text("plan", _block("\n".join(f"{op} {on}" for op, on in placement.device_names.items())))
        tf.summary.text("summary", _block(json.dumps(summary(outcome), indent=1, allow_nan=False)))
        if outcome.item is not None:
            tf.summary.graph(apply_placement(outcome.item, placement))
    writer.close()


def layer_tree(placement: Placement) -> str:
    """The layers as a table in Markdown, an inner one behind as many dashes as there are layers around it."""
    lines = [f"| {' | '.join(LAYER_COLUMNS)} |", "|---|---|---:|---:|---:|---:|"]
    for row, (_, *cells) in layer_cells(placement, layers_of(placement.problem), _MOST_LAYERS):
        name = f"{'– ' * row.depth}{row.name}"  # noqa: RUF001 - a dash, which Markdown makes no list of
        lines.append(f"| {' | '.join((name, *cells))} |")
    return "\n".join(lines)


def _block(text: str) -> str:
    """As it is: Markdown takes lines behind four spaces for code."""
    return "\n".join(f"    {line}" for line in text.splitlines())
