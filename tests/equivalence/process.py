"""Starts one of this folder's processes and reads what it printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.logical_devices import REPOSITORY


def report_of(module: str, *arguments: str, timeout_s: float) -> dict:
    """Runs a module of this folder and returns its report; fails with the last lines it wrote if it ends badly."""
    command = [sys.executable, "-m", f"tests.equivalence.{module}", *arguments]
    result = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr[-4000:]}"
    return json.loads(result.stdout.splitlines()[-1])
