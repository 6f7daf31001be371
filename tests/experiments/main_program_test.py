"""Experiments find their folder good before the work."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).absolute().parents[2]


# wrong_flags_test.py has the same in this process.
@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "experiments.study", "--study=ablations", "--out=/proc/out"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("study: --out=/proc/out: it cannot be written to: ")
