"""A SavedModel's export, and all results of a run, are there whole or not at all, whenever the writer is killed."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.logical_devices import REPOSITORY

SEED = 7


def found_by(folder: pathlib.Path, kills: int) -> dict[str, Any]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.tf_placer.command_line.killed_export_process",
            str(folder),
            str(kills),
            str(SEED),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def check(found: dict[str, Any], kills: int) -> None:
    print(f"seed {SEED}: {found}")
    export, results = found["export"], found["results"]
    assert export["wrong"] == [] and results["wrong"] == []
    assert sum(export["phases"].values()) == kills
    assert 1 <= export["phases"].get("reading", 0) < kills, "the kills met one phase only"
    # Of the steps of the swap: one after each file or folder that goes, and after each that comes but the last.
    assert results["phases"]["neither, unfinished beside it"] >= 7
    assert results["phases"].keys() >= {"old", "old, unfinished beside it", "new"}, (
        "the kills met some phases only"
    )


def test_ten_kills(tmp_path):
    check(found_by(tmp_path, 10), 10)


@pytest.mark.slow
def test_a_hundred_kills(tmp_path):
    check(found_by(tmp_path, 100), 100)
