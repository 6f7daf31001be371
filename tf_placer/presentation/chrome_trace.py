"""A plan's step as a Chrome trace: a file that Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

import json
import os

import tensorflow as tf

from tf_placer import arguments
from tf_placer.eager import eagerly
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.timeline import simulated_timeline
from tf_placer.files import write_atomically
from tf_placer.presentation.measured_process import measured_process
from tf_placer.presentation.simulated_process import simulated_process
from tf_placer.problem.placement import Placement

SIMULATED_PID, MEASURED_PID = 1, 2


def chrome_trace(placement: Placement, measured: tf.compat.v1.RunMetadata | None = None) -> str:
    """The JSON of a trace: the step as it is simulated and, beside it from the same 0 on, as the runtime traced it.

    Args:
      placement: the plan.
      measured: what ``RuntimeEvaluator.traced_step`` gives of the plan; None where it was not run.
    """
    timeline = simulated_timeline(placement.problem, placement.decisions)
    events = simulated_process(timeline, SIMULATED_PID)
    if measured is not None:
        events += measured_process(placement.problem, measured, MEASURED_PID)
    lines = ",\n".join(json.dumps(event, allow_nan=False, separators=(",", ":")) for event in events)
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'


@eagerly()
def write_timeline(
    path: str | os.PathLike[str], placement: Placement, evaluator: RuntimeEvaluator | None = None
) -> None:
    """Writes one step of a plan as a Chrome trace, whole or not at all: open it with Perfetto or chrome://tracing.

    Args:
      path: the file to write, for example ``timeline.json``.
      placement: the plan; whether it fits in memory or not.
      evaluator: runs the plan for one traced step, which stands beside the simulated one; None simulates alone.

    Raises:
      InputError: an argument of another type, or ``path`` cannot be written to.
      TraceFailed: the plan does not run.
    """
    file = arguments.path("path", path, "the file to write")
    arguments.instance_of(
        "placement", placement, Placement, "give the plan, for example SearchResult.placement"
    )
    if evaluator is not None:
        arguments.instance_of("evaluator", evaluator, RuntimeEvaluator, "give a RuntimeEvaluator, or None")
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise InputError(f"path is {arguments.shown(path)}; give a file in a folder that is there")
    measured = None if evaluator is None else evaluator.traced_step(placement.decisions)
    write_atomically(file, chrome_trace(placement, measured))
