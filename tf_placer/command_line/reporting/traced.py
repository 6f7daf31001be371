"""One step of the plan that is written, traced by the runtime: for who wants to see it beside the simulated one."""

from __future__ import annotations

import rich.console
import tensorflow as tf

from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator, TraceFailed
from tf_placer.problem.placement import Placement
from tf_placer.workers.local_workers import WorkerError


def traced_step(
    placement: Placement, evaluator: RuntimeEvaluator, console: rich.console.Console
) -> tf.compat.v1.RunMetadata | None:
    """A step of a plan that ran; None where tracing fails, which a line says: nothing else is lost with it.

    Args:
      placement: the plan.
      evaluator: of the program, still open.
      console: is told.
    """
    try:
        with console.status("tracing a step on the runtime"):
            return evaluator.traced_step(placement.decisions)
    except KeyboardInterrupt:
        why = "interrupted"
    except (TraceFailed, WorkerError, InputError) as error:
        why = str(error)
    text = f"No step was traced ({why}): timeline.json has the simulated one alone."
    console.print(text, soft_wrap=True, markup=False)
    return None
