"""Checks in a process of their own that has several logical CPU devices.

TensorFlow fixes its logical devices when its first op runs, so a test process cannot have them.
"""

import gc
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.own_process import processes_with_tensorflow

REPOSITORY = Path(__file__).resolve().parents[1]
NUM_DEVICES = 4


def outcomes_of(module: str, *arguments: str, timeout_s: float = 300) -> dict[str, Any]:
    """What a program prints as JSON: ``report`` prints name of each check -> "ok", or what is wrong.

    It runs in a fork of a process that has imported TensorFlow and tf_placer, which takes seconds.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stream in ("stdout", "stderr"):
            (folder / stream).touch()
        child = processes_with_tensorflow().Process(
            target=_run_as_program, args=(module, arguments, dict(os.environ), folder)
        )
        child.start()
        child.join(timeout_s)
        status = child.exitcode
        if status is None:
            child.kill()
            child.join()
        child.close()
        stdout, stderr = ((folder / stream).read_text(errors="replace") for stream in ("stdout", "stderr"))
    command = " ".join(["python -m", module, *arguments])
    assert status is not None, f"{command}: not done after {timeout_s} s\n{stderr[-4000:]}"
    assert status == 0, f"{command}: status {status}\n{stderr[-4000:]}"
    return json.loads(stdout.splitlines()[-1])


def _run_as_program(
    module: str, arguments: tuple[str, ...], environment: dict[str, str], folder: Path
) -> None:
    for descriptor, stream in ((1, "stdout"), (2, "stderr")):
        file = os.open(folder / stream, os.O_WRONLY)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2")
    os.chdir(REPOSITORY)
    gc.freeze()  # moving a variable looks through everything alive; modules need not be looked at
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def exact_mode(*, soft_placement: bool = False) -> None:
    """Gives this process its logical devices, and has it compute the same bits wherever ops are put.

    Call it before TensorFlow's first op. Without soft placement an op without a kernel on its device is an error; but
    ``tf.saved_model.load`` puts variables back where they were saved only with it.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.set_soft_device_placement(soft_placement)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * NUM_DEVICES
    )


def report(checks: Iterable[Callable[[], bool]], *, soft_placement: bool = False) -> None:
    """Runs the checks in ``exact_mode`` and prints how they went, as JSON."""
    exact_mode(soft_placement=soft_placement)
    json.dump({check.__name__: _outcome(check) for check in checks}, sys.stdout)


def _outcome(check: Callable[[], bool]) -> str:
    try:
        return "ok" if check() else "different"
    except Exception as error:  # noqa: BLE001 - reported, and the test fails on it
        return f"{type(error).__name__}: {error}"
