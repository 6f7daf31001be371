"""The examples of the README work as they stand there."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

import tf_placer


def readme_block(root: pathlib.Path, language: str) -> str:
    """The one block of a language in the README."""
    blocks = re.findall(
        rf"```{language}\n(.*?)```", (root / "README.md").read_text(encoding="utf8"), re.DOTALL
    )
    assert len(blocks) == 1, f"the README has one {language} example"
    return str(blocks[0])


def test_the_readmes_cluster_file_is_one(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "box.toml").write_text(readme_block(root, "toml"))
    cluster = tf_placer.Cluster.from_file(tmp_path / "box.toml")
    assert [device.type for device in cluster.devices] == ["GPU", "GPU", "CPU"]
    assert cluster.devices[0].memory_bytes == 12_000_000_000  # replaces the model's


@pytest.mark.slow
def test_the_readmes_example_runs(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", readme_block(root, "python")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "ms a step" in done.stdout
    assert (tmp_path / "placement.json").is_file()
