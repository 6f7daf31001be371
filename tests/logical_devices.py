"""Checks in a process of their own that has several logical CPU devices.

TensorFlow fixes its logical devices when its first op runs, so a test process cannot have them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
NUM_DEVICES = 4


def outcomes_of(module: str, *arguments: str) -> dict[str, Any]:
    """What a module prints as JSON: one that calls ``report``, name of each check -> "ok", or what is wrong."""
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout.splitlines()[-1])


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
