"""Files appear whole or not at all."""

import os

import pytest

from tf_placer.files import appearing_whole, replacing, write_atomically


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


def test_a_folder_appears_with_the_folders_it_is_in(tmp_path):
    with appearing_whole(tmp_path / "a" / "b") as inside:
        (inside / "file").write_text("x")
        assert sorted(os.listdir(tmp_path)) == [".a.new"]
    assert (tmp_path / "a" / "b" / "file").read_text() == "x"
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_that_is_not_finished_does_not_appear(tmp_path):
    (tmp_path / ".a.new").mkdir()  # a killed process left it
    (tmp_path / ".a.new" / "old").write_text("")
    with pytest.raises(KeyboardInterrupt), appearing_whole(tmp_path / "a") as inside:
        assert os.listdir(inside) == []
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_results_take_the_place_of_all_earlier_ones_and_of_nothing_else(tmp_path):
    for name in ("model", "summary", "notes"):
        (tmp_path / name).write_text("old")
    with replacing(tmp_path, ("model", "plan", "summary")) as unfinished:
        (unfinished / "plan").write_text("new")
        (unfinished / "summary").write_text("new")
        assert (tmp_path / "summary").read_text() == "old"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "notes": "old",
        "plan": "new",
        "summary": "new",
    }


def test_results_that_fail_change_nothing(tmp_path):
    (tmp_path / "summary").write_text("old")
    with pytest.raises(OSError, match="full"), replacing(tmp_path, ("summary",)) as unfinished:
        (unfinished / "summary").write_text("new")
        raise OSError("full")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"summary": "old"}
