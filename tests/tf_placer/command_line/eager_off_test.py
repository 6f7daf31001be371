"""Commands for a function of a script that switches eager execution off: all that they write is written."""

import os
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[3]
_SCRIPT = """
import numpy as np
import tensorflow.compat.v1 as tf

tf.{off}()


def step(x):
    return tf.reduce_sum(tf.tanh(x @ tf.ones([16, 16])) @ tf.ones([16, 4]))


step_args = lambda: (tf.ones([8, 16]),)
"""


def _output(folder: pathlib.Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "tf_placer", *words]
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Exception ignored" not in done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("off", ["disable_v2_behavior", "disable_eager_execution"])
def test_place_and_explain(tmp_path: pathlib.Path, off: str) -> None:
    (tmp_path / "off.py").write_text(_SCRIPT.format(off=off))
    asked = ["off.py:step", "--cluster=k40x2"]
    few = ["--method=random", "--budget_evaluations=16"]
    _output(tmp_path, "place", *asked, *few, "--parts=auto", "--out=out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"placement.json", "placed_graph.pb", "timeline.json", "report.html", "summary.json"}
    assert "matmul" in _output(tmp_path, "explain", *asked, "--plan=out/placement.json", "--op=matmul")
