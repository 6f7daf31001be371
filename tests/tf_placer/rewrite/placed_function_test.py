"""A placed function is the same callable: arguments, results, gradients, variables, side effects."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
CHECKS = (
    "structured",
    "loops_and_branches",
    "gradient_from_outside",
    "variables_and_older_functions",
    "side_effects",
    "nested_and_saved",
    "keras_training",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What ``placed_function_process`` found, in a process that has four logical devices."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.tf_placer.rewrite.placed_function_process"],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_it_does_what_the_unplaced_function_does(outcomes, check):
    assert outcomes[check] == "ok"
