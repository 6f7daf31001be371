"""The issue's road: a Keras application is exported, placed on a described machine, and exported again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tf_placer.graph.item import Item

REPOSITORY = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.slow
def test_an_exported_application_can_be_placed(tmp_path):
    export = ["experiments.export_keras_model", "--size=32", f"--out={tmp_path / 'm'}"]
    done = run(*export)
    assert done.returncode == 0, done.stderr
    item = Item.from_saved_model(tmp_path / "m")
    assert "serving_default input image: [any, 32, 32, 3]" in done.stdout
    assert f"{len(item.graph_def.node)} ops, {len(item.variables)} variables" in done.stdout
    assert "is there already" in run(*export).stderr

    place = ["tf_placer", "place", f"--saved_model={tmp_path / 'm'}", "--cluster=p100x2", "--method=random"]
    done = run(*place, "--budget_evaluations=16", f"--out={tmp_path / 'q'}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "q" / "saved_model" / "saved_model.pb").is_file()
