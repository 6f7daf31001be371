"""Workers are forks of one process that has imported TensorFlow, and die, run and are told of as if they were not."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.local import local_devices
from tf_placer.workers import fork_server
from tf_placer.workers.connection import import_meanwhile
from tf_placer.workers.local_workers import LocalWorkers

REPOSITORY = Path(__file__).resolve().parents[3]
CLUSTER = Cluster("local", *local_devices(1), kind="local")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_gone(pid: int, timeout_s: float = 60.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return not os.path.exists(f"/proc/{pid}")


@pytest.fixture
def own_server(monkeypatch):
    """A server of the test alone."""
    monkeypatch.setenv("TF_OF_A_TEST", "1")
    yield
    for key, server in list(fork_server._servers.items()):
        if ("TF_OF_A_TEST", "1") in key[3]:
            server.close()


@pytest.mark.medium
def test_all_workers_are_of_one_server_and_each_is_as_this_process_is_now(own_server, monkeypatch, tmp_path):
    with LocalWorkers(CLUSTER) as workers:
        server = parent_of(workers.pids[0])
    assert fork_server.has_forked()
    monkeypatch.setenv("A_VARIABLE_OF_THE_USER", "é")
    monkeypatch.chdir(tmp_path)
    with LocalWorkers(CLUSTER, pinned=False) as workers:
        (pid,) = workers.pids
        assert parent_of(pid) == server
        assert os.readlink(f"/proc/{pid}/cwd") == str(tmp_path)
        assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)


@pytest.mark.slow
def test_what_libraries_read_when_they_are_loaded_is_of_a_server(own_server, monkeypatch):
    import_meanwhile(CLUSTER)
    monkeypatch.setenv("TF_OF_A_TEST", "2")
    import_meanwhile(CLUSTER)
    pids = {server.pid for key, server in fork_server._servers.items() if "TF_OF_A_TEST" in dict(key[3])}
    assert len(pids) == 2
    fork_server.end_unused()
    assert all(map(is_gone, pids))


@pytest.mark.medium
def test_workers_end_with_their_server_and_start_again(own_server):
    with LocalWorkers(CLUSTER) as workers:
        (pid,) = workers.pids
        server = parent_of(pid)
        os.kill(server, signal.SIGKILL)
        while workers.death() is None:
            time.sleep(0.05)
        assert "was killed by signal 9" in workers.death()
        assert is_gone(pid)
        workers.start()
        assert workers.death() is None and parent_of(workers.pids[0]) != server


@pytest.mark.medium
def test_how_a_worker_ended_is_told(own_server):
    with LocalWorkers(CLUSTER) as workers:
        (pid,) = workers.pids
        os.kill(pid, signal.SIGSEGV)
        while workers.death() is None:
            time.sleep(0.05)
        assert f"worker 0 (pid {pid}) was killed by signal 11" in workers.death()


@pytest.mark.slow
def test_a_server_that_nobody_needs_ends_and_is_started_again(own_server, monkeypatch):
    monkeypatch.setattr(fork_server, "IDLE_S", 0.1)
    with LocalWorkers(CLUSTER) as workers:
        server = parent_of(workers.pids[0])
        time.sleep(1.5)
        assert workers.death() is None, "it is needed as long as a worker lives"
    deadline_s = time.monotonic() + 60.0
    while any(one.pid == server and one.is_alive for one in fork_server._servers.values()):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    with LocalWorkers(CLUSTER) as workers:
        assert parent_of(workers.pids[0]) != server


@pytest.mark.medium
def test_no_server_survives_a_killed_process():
    script = textwrap.dedent(
        """
        import time
        from tf_placer.workers.fork_server import fork_server
        print(fork_server(None).pid, flush=True)
        time.sleep(600)
        """
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        server = int(process.stdout.readline())
        process.kill()
    assert is_gone(server)  # it sees that once TensorFlow is imported
