"""The process that solves windows, kept for as long as who asked for it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import weakref
from typing import Any

import numpy as np

from tf_placer.planners.window import Window

_PROGRAM = pathlib.Path(__file__).with_name("window_model.py")


class SolverProcess:
    """Asks ``window_model.py``, which cannot run beside TensorFlow in one process.

    devices, bound_ns = SolverProcess().solve(window, under_ns, forbidden, hint, effort, seed)
    """

    def __init__(self) -> None:
        """Starts it."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        weakref.finalize(self, _end, self._process)

    def solve(
        self,
        window: Window,
        under_ns: int | None,
        forbidden: np.ndarray,
        hint: np.ndarray,
        effort: float,
        seed: int,
        early: bool = False,
    ) -> tuple[np.ndarray, int]:
        """[K, U'] devices and a bound: see ``WindowModel``.

        Raises:
          RuntimeError: the solver has died.
        """
        asked = {
            "window": window.description(),
            "under_ns": under_ns,
            "forbidden": forbidden.tolist(),
            "hint": hint.tolist(),
            "effort": effort,
            "seed": seed,
            "early": early,
        }
        assert self._process.stdin is not None and self._process.stdout is not None  # they are pipes
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the solver's process has ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return np.array(answer["devices"], np.int32).reshape(-1, len(window.units)), int(answer["bound_ns"])


def _end(process: subprocess.Popen[str]) -> None:
    """Without more to read it ends by itself."""
    process.communicate()
