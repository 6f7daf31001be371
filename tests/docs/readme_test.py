"""The README is short, and its example works as it stands there."""

import pathlib
import sys

import pytest

from tests.docs.pages import blocks, printed_by, read

MOST_LINES = 109


def test_the_readme_is_a_front_page(root: pathlib.Path) -> None:
    assert len(read(root / "README.md").splitlines()) <= MOST_LINES


def test_the_example_is_python(root: pathlib.Path) -> None:
    [example] = blocks(root / "README.md", "python")
    assert "@tf_placer.auto_place(" in example.text
    compile(example.text, "README.md", "exec")


@pytest.mark.slow
def test_the_example_runs(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    [example] = blocks(root / "README.md", "python")
    printed = printed_by(
        [sys.executable, "-c", example.text], root, tmp_path, 400, XDG_CACHE_HOME=str(tmp_path)
    )
    assert "train_step on local" in printed
