"""Files appear whole or not at all."""

import os

import pytest

from tf_placer.files import write_atomically


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "plan.json"
    write_atomically(path, "old")
    write_atomically(path, "new ü")
    assert path.read_text(encoding="utf8") == "new ü"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    write_atomically(path, "old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_text_that_cannot_be_encoded_leaves_nothing(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "plan.json", "lone surrogate \ud800")
    assert os.listdir(tmp_path) == []
