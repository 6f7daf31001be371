"""docs/extending.md is followed: its files are written, its blocks are run, and its preset is one."""

import pathlib
import sys

import pytest

import tf_placer
from tests.docs.pages import blocks
from tf_placer import workloads
from tf_placer.cluster import device as preset
from tf_placer.search import methods
from tf_placer.workloads import registry

PAGE = pathlib.Path("docs") / "extending.md"
NEW_METHODS, NEW_WORKLOADS = {"cut_once", "one_by_one", "unit_policy"}, {"two_heads"}


@pytest.fixture
def followed(root: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder in which the page was followed; what it registers is forgotten after the test."""
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    files = [
        block for language in ("python", "toml") for block in blocks(root / PAGE, language) if block.note
    ]
    for block in files:
        (tmp_path / block.note).write_text(block.text)
    script = [block for block in blocks(root / PAGE, "python") if not block.note]
    assert len(files) == 5 and len(script) >= 7, "the page has lost blocks"
    names: dict[str, object] = {}
    try:
        for number, block in enumerate(script):
            exec(compile(block.text, f"{PAGE.name}, block {number}", "exec"), names)
    finally:
        for block in files:
            sys.modules.pop(pathlib.Path(block.note).stem, None)
    return tmp_path


@pytest.mark.medium
def test_the_page_is_true(followed, monkeypatch):
    assert set(methods.names()) >= NEW_METHODS and set(workloads.names()) >= NEW_WORKLOADS
    for run in ("cut_once", "two_heads", "my_box"):
        assert (followed / "out" / run / "placement.json").is_file()

    # A preset is a file of the folder, and nothing else.
    monkeypatch.setattr(preset, "_PRESETS", followed)
    assert preset.preset_names() == ("my_box",)
    assert tf_placer.Cluster.preset("my_box").devices == tf_placer.Cluster.from_file("my_box.toml").devices


def test_what_the_page_adds_is_not_there_without_it():
    assert not NEW_METHODS & set(methods.names())
    assert not NEW_WORKLOADS & set(workloads.names())
