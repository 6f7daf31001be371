"""A process on live workers says nothing of errors that are none: not while it runs, and not when it ends."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

_PROCESS = pathlib.Path(__file__).with_name("quiet_process.py")
_LOOK = "import tensorflow as tf, keras; tf.config.list_logical_devices()"
_STAMP = re.compile(r"^([IWEF])\d{4} \S+ +\d+ ")


def said(*command: str) -> list[str]:
    """Lines on stderr of a Python process that must succeed, without times."""
    root = str(pathlib.Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": root, "TF_CPP_MIN_LOG_LEVEL": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [_STAMP.sub(r"\1 ", line) for line in done.stderr.splitlines()]


@pytest.mark.slow
def test_keras_on_live_workers(tmp_path: pathlib.Path) -> None:
    by_itself = set(said("-c", _LOOK))  # on a machine without a GPU TensorFlow says so
    lines = [line for line in said(str(_PROCESS), str(tmp_path)) if line not in by_itself]
    theirs = re.compile(r"[WEF] |WARNING|Traceback|Exception ignored|.*(GRPC|grpc_status|remote target)")
    assert [line for line in lines if theirs.match(line)] == []
