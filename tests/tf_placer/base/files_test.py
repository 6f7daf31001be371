"""Files appear whole or not at all, folders are one process's at a time, and damaged arrays are told in one line."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.refused import refused
from tf_placer.base import files as folders
from tf_placer.base.arguments import InputError
from tf_placer.base.files import (
    appearing_whole,
    array_file_bytes,
    check_writable,
    exclusively,
    read_array_file,
    replacing,
    reserved,
    write_atomically,
)


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
    with refused(r"plan\.json cannot be written: No space left on device; make room"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


@pytest.mark.parametrize("there", [False, True])
def test_results_on_a_full_disk_are_told_in_one_line(tmp_path, there):
    folder = tmp_path / "out"
    if there:
        folder.mkdir()
    told = refused("out cannot be written: No space left on device; make room")
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
    with refused(f"{bad} cannot be written: .*; make room, or write somewhere else"):
        write_atomically(tmp_path / bad, "text")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


# A process that has something until it is told to end: tf_placer's own code without the seconds of importing all of it.
HOLDER = """
import pathlib, sys, types
package = types.ModuleType("tf_placer")
package.__path__ = [{package!r}]
sys.modules["tf_placer"] = package
from tf_placer.base.files import appearing_whole, replacing, reserved
folder = pathlib.Path({folder!r})
with {what}:
    print("has it", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process():
    """Starts a process that is within some context manager, until it is killed or its stdin closes."""
    started = []

    def start(what: str, folder: Path) -> subprocess.Popen:
        program = HOLDER.format(package=str(Path(folders.__file__).parents[1]), folder=str(folder), what=what)
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout.readline() == b"has it\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_folder_of_another_process_is_refused_until_that_ends(tmp_path, other_process):
    out = tmp_path / "deep" / "out"
    other = other_process("reserved(folder, 'x')", out)
    refusal = r"^--out=o: another run is writing there; wait for it, or give another folder$"
    with refused(refusal), reserved(out, "--out=o"):
        pytest.fail("two had it")
    assert os.listdir(out) == [".run.lock"], "who is refused takes nothing away"
    with reserved(tmp_path / "deep" / "other", "--out"):
        pass
    other.communicate()
    assert os.listdir(tmp_path) == [], "nothing was written, so nothing is left"
    with reserved(out, "--out"):
        (out / "result").touch()
    assert os.listdir(out) == ["result"]


def test_a_killed_process_has_nothing(tmp_path, other_process):
    out = tmp_path / "out"
    other = other_process("reserved(folder, 'x')", out)
    other.send_signal(signal.SIGKILL)
    other.wait()
    with reserved(out, "--out"):
        (out / "result").touch()
    assert os.listdir(out) == ["result"]


@pytest.mark.parametrize("there", [False, True])
def test_results_that_another_process_is_writing_are_left_alone(tmp_path, other_process, there):
    out = tmp_path / "out"
    if there:
        out.mkdir()
    other_process("replacing(folder, ('summary',)) as new, open(new / 'half', 'w') as file", out)
    before = sorted(tmp_path.rglob("*"))
    refusal = r"out: another process is writing .*; wait for it, or give another"
    with refused(refusal), replacing(out, ("summary",)):
        pytest.fail("two wrote")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_that_another_process_is_writing_is_left_alone(tmp_path, other_process):
    target = tmp_path / "deep" / "model"
    other = other_process("appearing_whole(folder) as new, open(new / 'pb', 'w') as file", target)
    with refused(r"model: another process is writing .*deep"), appearing_whole(target):
        pytest.fail("two wrote")
    other.communicate()
    assert os.listdir(target) == ["pb"] and os.listdir(tmp_path) == ["deep"]
    with refused("model is there already"), appearing_whole(target):
        pytest.fail("it is there")


def test_many_at_once_are_one_at_a_time(tmp_path):
    inside, most, entered = [], [], []
    lock = tmp_path / "lock"

    def run():
        for _ in range(200):
            try:
                with exclusively(lock, "taken"):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    entered.append(1)
            except InputError:
                continue

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1} and len(entered) > 10
    assert not lock.exists()


BAD = {
    "below a file": ("{tmp}/file/out", "file is a file; give another folder"),
    "a file": ("{tmp}/file", "file is a file; give another folder"),
    "a link to nothing": ("{tmp}/link/out", "cannot be written to: "),
    "no real disk": ("/proc/out", "cannot be written to: "),
    "a folder of no real disk": ("/proc/self", "cannot be written to: "),
    "a name that is too long": ("{tmp}/deep/" + 300 * "x", "cannot be written to: File name too long"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_written_to_is_told_at_once(tmp_path, bad):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    path, why = BAD[bad]
    folder = Path(path.format(tmp=tmp_path))
    with refused(f"^--out=o: .*{why}"):
        check_writable(folder, "--out=o")
    with refused(f"^--out=o: .*{why}"), reserved(folder, "--out=o"):
        pytest.fail("it cannot be")
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_a_check_changes_nothing(tmp_path):
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "there", tmp_path / "a" / "b"):
        check_writable(folder, "--out")
    assert os.listdir(tmp_path) == ["there"] and os.listdir(tmp_path / "there") == []


def test_a_disk_without_locks_is_told_and_used(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(folders.fcntl, "flock", no_locks)
    with reserved(tmp_path, "--out"):
        pass
    (message,) = caplog.messages
    assert "the disk has no locks" in message
    assert os.listdir(tmp_path) == []


KIND, REMEDY = "a test", "write it again"
ARRAYS = {
    "whole": np.arange(6).reshape(2, 3),
    "truth": np.array([True, False]),
    "none": np.zeros((0, 4), np.int32),
}
CONTENT = array_file_bytes(KIND, 3, {"a": ["b", 1.5]}, ARRAYS)


def read(path, content=CONTENT, kind=KIND, version=3):
    path.write_bytes(content)
    return read_array_file(path, kind, version, REMEDY)


def test_what_is_written_is_read(tmp_path):
    assert array_file_bytes(KIND, 3, {"a": ["b", 1.5]}, ARRAYS) == CONTENT, "equal content is equal bytes"
    header, arrays = read(tmp_path / "file")
    assert header == {"a": ["b", 1.5]}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def npz(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def with_member(name, content):
    archive = io.BytesIO(CONTENT)
    with zipfile.ZipFile(archive, "a") as members:
        members.writestr(name, content)
    return archive.getvalue()


PICKLED = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117)
    + b"\n..."
)
HUGE = b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (1152921504606846976,), }"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"PK\x03\x04",
        CONTENT[: len(CONTENT) // 2],
        CONTENT[:-1],
        npz(a=np.ones(3)),
        npz(header=np.ones(3)),
        npz(header=np.frombuffer(b"[1]", np.uint8)),
        npz(header=np.frombuffer(b'{"kind": "a test", "schema_version": 3, "header": 7}', np.uint8)),
        npz(header=np.frombuffer(b"[" * 100_000, np.uint8)),
        with_member("huge.npy", HUGE.ljust(127) + b"\n"),
        with_member("pickled.npy", PICKLED),
    ],
)  # fmt: skip
def test_what_is_no_such_file_is_told(tmp_path, content):
    with refused(r"file is damaged, or no file of a test; write it again$"):
        read(tmp_path / "file", content)


def test_another_kind_another_version_and_no_file(tmp_path):
    with refused(r"file is a file of 'a test', not of another; write it again$"):
        read(tmp_path / "file", kind="another")
    with refused(r"file has schema version 3, this program reads 4; write it again$"):
        read(tmp_path / "file", version=4)
    with refused(r"cannot read .*none \(No such file or directory\); write it again$"):
        read_array_file(tmp_path / "none", KIND, 3, REMEDY)
    with refused(r"cannot read .* \(Is a directory\); write it again$"):
        read_array_file(tmp_path, KIND, 3, REMEDY)


def test_a_flipped_bit_is_seen_or_changes_nothing(tmp_path):
    generator, seen = np.random.default_rng(0), 0
    for _ in range(200):
        damaged = bytearray(CONTENT)
        damaged[generator.integers(len(CONTENT))] ^= 1 << generator.integers(8)
        try:
            header, arrays = read(tmp_path / "file", bytes(damaged))
        except InputError:
            seen += 1
            continue
        assert header == {"a": ["b", 1.5]}
        for name in arrays.keys() & ARRAYS.keys():
            np.testing.assert_array_equal(arrays[name], ARRAYS[name])
    assert seen > 100
