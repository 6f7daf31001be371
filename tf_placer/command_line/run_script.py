"""A script run in a process of its own, whose TensorFlow loads the plug-in that places functions."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tf_placer import native_log
from tf_placer.base.arguments import InputError
from tf_placer.command_line.script_process import ScriptRun
from tf_placer.rewrite.plug_in import DISABLE, LOADED_BY, plug_in

_ROOT = pathlib.Path(__file__).parents[2]
# The folder of this package leaves the path again: a script finds what it finds with `python SCRIPT`.
_PROGRAM = (
    "import sys; sys.path.insert(0, {root!r}); from tf_placer.command_line.script_process import main; "
    "del sys.path[0]; main()"
)
_BY_SIGNAL = 128  # added to a signal's number, as shells do


def run_script(
    program: Sequence[str],
    cluster: str,
    plan: str | None,
    budget_s: float,
    batch_size: int,
    refresh: bool,
) -> int:
    """Runs a script as ``python SCRIPT ARGS`` does, under a plan; returns its exit status.

    Args:
      program, cluster, plan, budget_s, batch_size, refresh: as ``ScriptRun`` has them, checked.

    Raises:
      InputError: the plug-in cannot be compiled, is built for another TensorFlow, or another one is asked for.
    """
    is_off = os.environ.get(DISABLE) == "1"
    if os.environ.get(LOADED_BY):
        raise InputError(
            f"{LOADED_BY} is {os.environ[LOADED_BY]}, and run has a plug-in of its own to load; unset it"
        )
    if plan is not None:
        _check_plan(plan)
    library = plug_in()
    if is_off:
        sys.stderr.write(f"tf-placer: {DISABLE}=1: {program[0]} runs as it is\n")
        return _status([sys.executable, *program], dict(os.environ))
    asked = ScriptRun(program, str(library), cluster, plan, budget_s, batch_size, refresh, os.getcwd())
    command = [sys.executable, "-c", _PROGRAM.format(root=str(_ROOT)), json.dumps(dataclasses.asdict(asked))]
    return _status(command, os.environ | {LOADED_BY: str(library)})


def _check_plan(path: str) -> None:
    """Raises InputError where a file is no plan, or none of a whole batch."""
    native_log.load_tensorflow()
    from tf_placer.problem.placement import PlanFile

    plan = PlanFile.read(path)
    if plan.splitting is not None:
        raise InputError(
            f"--plan={path} has {plan.splitting}; give one of the whole batch: place with --parts=1"
        )


def _status(command: list[str], environment: dict[str, str]) -> int:
    sys.stdout.flush()
    with subprocess.Popen(command, env=environment) as process, _signals_are_for(process):
        status = process.wait()
    return _BY_SIGNAL - status if status < 0 else status


@contextlib.contextmanager
def _signals_are_for(process: subprocess.Popen) -> Iterator[None]:
    """Leaves Ctrl-C to the script meanwhile, and passes a termination signal on."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number)),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
