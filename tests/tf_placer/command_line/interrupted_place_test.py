"""Ctrl-C twice during HDP, in a process of its own: its best is written, and nothing of TensorFlow's is printed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[3]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("first_s", "second_s"), [(0.0, 0.05), (3.0, 0.2), (12.0, 0.0), (12.0, 1.0)]
)  # while it traces, and while it learns
def test_the_best_of_a_search_is_written(first_s, second_s, tmp_path):
    command = [sys.executable, "-m", "tf_placer", "place", "--workload=dense_small", "--cluster=k40x2"]
    command += ["--method=hdp", "--budget_s=600", "--write=method", f"--out={tmp_path / 'out'}"]
    out, error = tmp_path / "stdout", tmp_path / "stderr"
    with open(out, "wb") as stdout, open(error, "wb") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, stdout=stdout, stderr=stderr, env=dict(os.environ))
    try:
        for _ in range(1200):  # until its first round is over
            if "hdp on k40x2" in out.read_text() or process.poll() is not None:
                break
            time.sleep(0.1)
        time.sleep(first_s)
        process.send_signal(signal.SIGINT)
        time.sleep(second_s)
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=100)
    finally:
        process.kill()
    assert status == 0, error.read_text()
    assert "Traceback" not in error.read_text() and "Exception" not in error.read_text()
    assert "The search was interrupted; this is the best plan so far." in out.read_text()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["interrupted"] and summary["written"] == "hdp"
