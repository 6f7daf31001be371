"""Folders are found good before the work, and are one process's at a time."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tf_placer.base import files as folders
from tf_placer.base.arguments import InputError
from tf_placer.base.files import appearing_whole, check_writable, exclusively, replacing, reserved

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
        program = HOLDER.format(
            package=str(Path(folders.__file__).parent.parent), folder=str(folder), what=what
        )
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
    with pytest.raises(InputError, match=refusal), reserved(out, "--out=o"):
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
    with pytest.raises(InputError, match=refusal), replacing(out, ("summary",)):
        pytest.fail("two wrote")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_that_another_process_is_writing_is_left_alone(tmp_path, other_process):
    target = tmp_path / "deep" / "model"
    other = other_process("appearing_whole(folder) as new, open(new / 'pb', 'w') as file", target)
    with (
        pytest.raises(InputError, match=r"model: another process is writing .*deep"),
        appearing_whole(target),
    ):
        pytest.fail("two wrote")
    other.communicate()
    assert os.listdir(target) == ["pb"] and os.listdir(tmp_path) == ["deep"]
    with pytest.raises(InputError, match="model is there already"), appearing_whole(target):
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
    with pytest.raises(InputError, match=f"^--out=o: .*{why}"):
        check_writable(folder, "--out=o")
    with pytest.raises(InputError, match=f"^--out=o: .*{why}"), reserved(folder, "--out=o"):
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
