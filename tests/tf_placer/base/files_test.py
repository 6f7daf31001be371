"""Files appear whole or not at all."""

import os
import subprocess
import sys

import pytest

from tf_placer.base.arguments import InputError
from tf_placer.base.files import appearing_whole, replacing, write_atomically


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "plan.json"
    write_atomically(path, "old")
    write_atomically(path, "new ü")
    assert path.read_text(encoding="utf8") == "new ü"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_of_many_processes_that_write_at_once_each_writes_a_whole_file(tmp_path):
    path = tmp_path / "plan.json"
    program = f"""
import pathlib, sys
from tf_placer.base.files import write_atomically
for _ in range(100):
    write_atomically(pathlib.Path({str(path)!r}), sys.argv[1] * int(sys.argv[2]))
"""
    given = [("a", 100_000), ("b", 50_000), ("c", 1)]
    writers = [subprocess.Popen([sys.executable, "-c", program, text, str(n)]) for text, n in given]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert path.read_text() in [text * n for text, n in given]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "plan.json"
    write_atomically(path, "old")
    (tmp_path / "plan.json.new").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"plan\.json cannot be written: No space left on device; make room"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


@pytest.mark.parametrize("there", [False, True])
def test_results_on_a_full_disk_are_told_in_one_line(tmp_path, there):
    folder = tmp_path / "out"
    if there:
        folder.mkdir()
    told = pytest.raises(InputError, match="out cannot be written: No space left on device; make room")
    with told, replacing(folder, ("summary",)) as unfinished:
        (unfinished / "summary").symlink_to("/dev/full")
        (unfinished / "summary").write_text("new")
    assert os.listdir(tmp_path) == ["out"] * there and not list(tmp_path.glob("out/*"))


def test_a_text_that_cannot_be_encoded_leaves_nothing(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "plan.json", "lone surrogate \ud800")
    assert os.listdir(tmp_path) == []


def test_a_folder_appears_with_the_folders_it_is_in(tmp_path):
    with appearing_whole(tmp_path / "a" / "b") as inside:
        (inside / "file").write_text("x")
        assert sorted(os.listdir(tmp_path)) == [".a.lock", ".a.new"]
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
    with pytest.raises(ValueError, match="wrong"), replacing(tmp_path, ("summary",)) as unfinished:
        (unfinished / "summary").write_text("new")
        raise ValueError("wrong")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"summary": "old"}


@pytest.mark.parametrize("bad", ["file/plan.json", "missing/plan.json", "folder", "/proc/plan.json"])
def test_a_file_that_cannot_be_written_is_one_line(tmp_path, bad):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"{bad} cannot be written: .*; make room, or write somewhere else"):
        write_atomically(tmp_path / bad, "text")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
