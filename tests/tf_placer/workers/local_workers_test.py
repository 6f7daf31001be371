"""Workers are forks of one process that has imported TensorFlow: pinned, off the network, and die with their owner."""

import dataclasses
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import tensorflow as tf

from tests.listening import listening_addresses
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster, Link
from tf_placer.workers import fork_server, worker_process
from tf_placer.workers.local_workers import LocalWorkers, WorkerError, import_meanwhile, workers_of

REPOSITORY = Path(__file__).resolve().parents[3]
CLUSTER = Cluster.local(1)


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
def test_a_server_that_another_thread_closes_meanwhile_is_started_again(own_server, monkeypatch):
    workers = LocalWorkers(CLUSTER)
    closed, prepare = [workers.prepare()], workers.prepare
    closed[0].close()
    monkeypatch.setattr(workers, "prepare", lambda: closed.pop() if closed else prepare())
    with workers:
        assert not closed and workers.death() is None


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


# A child process as LocalWorkers starts them, without the seconds of TensorFlow.
CHILD = """
import os, subprocess, sys
sys.path.insert(0, {folder!r})
import worker_process
worker_process.forget_preloaded()
print(worker_process.is_on_loopback(), os.environ.get("LD_PRELOAD"))
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "import os; print(os.environ.get('LD_PRELOAD'))"])
"""


def run_preloading(library: Path | None, program: str) -> list[str]:
    with fork_server.preloading(library) as (environment, descriptors):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, pass_fds=descriptors, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.medium
def test_workers_listen_on_the_loopback_alone_unless_they_are_to_be_open(monkeypatch):
    monkeypatch.delenv(fork_server.OPEN_WORKERS, raising=False)
    cluster = Cluster.local(1)
    with fork_server.workers_opened(True):
        to_be_open = LocalWorkers(cluster)
    with LocalWorkers(cluster) as closed, to_be_open as opened:
        (pid,), (open_pid,) = closed.pids, opened.pids
        found, open_found = listening_addresses(pid), listening_addresses(open_pid)
    assert found and open_found, "they listen, or the test looks in the wrong place"
    assert all(is_loopback(address) for address in found), found
    assert not any(is_loopback(address) for address in open_found), open_found


def is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


@pytest.mark.parametrize("users_own", ["", "libm.so.6", "libm.so.6:libdl.so.2"])
def test_only_the_worker_preloads_and_what_the_user_preloads_stays(monkeypatch, tmp_path, users_own):
    # The list of what is preloaded has no way to say a name with a blank or a colon.
    library = tmp_path / "My Project: 2" / "fork_server.so"
    library.parent.mkdir()
    library.symlink_to(fork_server.loopback_library())
    monkeypatch.setenv("LD_PRELOAD", users_own)
    program = CHILD.format(folder=str(Path(worker_process.__file__).parent))
    assert run_preloading(library, program) == ["True", users_own or "None", users_own or "None"]
    assert os.environ["LD_PRELOAD"] == users_own


@pytest.mark.parametrize(
    ("family", "asked", "bound"),
    [
        ("AF_INET", "", "127.0.0.1"),
        ("AF_INET", "127.0.0.2", "127.0.0.2"),
        ("AF_INET6", "::", "::ffff:127.0.0.1"),
        ("AF_INET6", "::ffff:0.0.0.0", "::ffff:127.0.0.1"),
        ("AF_INET6", "::1", "::1"),
    ],
)
def test_what_is_bound_to_any_address_is_bound_to_the_loopback(family, asked, bound):
    program = f"""
import socket
with socket.socket(socket.{family}) as one:
    if one.family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    one.bind(({asked!r}, 0))
    print(one.getsockname()[0])
"""
    assert run_preloading(fork_server.loopback_library(), program) == [bound]


def test_other_sockets_are_bound_as_ever(tmp_path):
    program = f"""
import socket
with socket.socket(socket.AF_UNIX) as one:
    one.bind({str(tmp_path / "a socket")!r})
"""
    run_preloading(fork_server.loopback_library(), program)
    assert (tmp_path / "a socket").is_socket()


@pytest.mark.medium
def test_a_worker_that_the_library_has_no_effect_on_does_not_start(monkeypatch, tmp_path):
    monkeypatch.delenv(fork_server.OPEN_WORKERS, raising=False)
    without_effect = tmp_path / "empty.so"
    without_effect.touch()
    monkeypatch.setattr("tf_placer.workers.local_workers.loopback_library", lambda: without_effect)
    workers = LocalWorkers(Cluster.local(1))
    with pytest.raises(InputError, match=r"cannot be kept off the network: .*; --open_workers or .* goes on"):
        workers.start()
    assert workers.pids == ()


@pytest.mark.parametrize(("word", "is_open"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_the_environment_opens_workers(monkeypatch, word, is_open):
    monkeypatch.delenv(fork_server.OPEN_WORKERS, raising=False)
    if word is not None:
        monkeypatch.setenv(fork_server.OPEN_WORKERS, word)
    assert fork_server.are_workers_open() == is_open
    with fork_server.workers_opened(True):
        assert fork_server.are_workers_open()
    with fork_server.workers_opened(False):
        assert fork_server.are_workers_open() == is_open
    assert os.environ.get(fork_server.OPEN_WORKERS) == word
    monkeypatch.setenv(fork_server.OPEN_WORKERS, "maybe")
    with pytest.raises(InputError, match="TF_PLACER_OPEN_WORKERS is 'maybe'; give 1 or 0"):
        fork_server.are_workers_open()


@pytest.mark.parametrize("is_open", [False, True])
def test_only_new_listeners_of_this_process_are_confined(monkeypatch, is_open):
    monkeypatch.setenv(fork_server.OPEN_WORKERS, str(int(is_open)))
    with socket.create_server(("", 0)) as before:
        with fork_server.own_listeners_confined():
            within = socket.create_server(("", 0))
        with within, socket.create_connection(("127.0.0.1", within.getsockname()[1]), timeout=5):
            assert device_of(within) == ("" if is_open else "lo")
            assert device_of(before) == ""


def device_of(listener: socket.socket) -> str:
    """The network interface that a socket is confined to."""
    return listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0").decode()


def test_described_hardware_cannot_be_started():
    cluster = Cluster("paper", Cluster.local(1).devices, (), kind="described")
    with pytest.raises(InputError, match="'paper' is described"):
        workers_of(cluster)


def test_more_workers_than_cores_are_refused():
    (device,) = Cluster.local(1).devices
    count = len(os.sched_getaffinity(0)) + 1
    names = [device.name.replace("task:0", f"task:{task}") for task in range(count)]
    devices = tuple(dataclasses.replace(device, name=name) for name in names)
    links = tuple(
        Link(source, target, 1, 1.0, "loopback")
        for source in range(count)
        for target in range(count)
        if source != target
    )
    with pytest.raises(InputError, match=f"has {count} workers, but this process may use {count - 1} cores"):
        LocalWorkers(Cluster("crowded", devices, links, kind="local"))


def test_a_session_reaches_each_pinned_worker_and_none_survives_the_block():
    cluster = Cluster.local(len(os.sched_getaffinity(0)))
    cores = sorted(os.sched_getaffinity(0))
    with LocalWorkers(cluster) as workers:
        pids = workers.pids
        assert len(set(pids)) == len(cluster.devices)
        for core, pid in zip(cores, pids, strict=True):
            threads = os.listdir(f"/proc/{pid}/task")
            assert {core} == set().union(*(os.sched_getaffinity(int(thread)) for thread in threads))
        with tf.compat.v1.Session(workers.target, graph=tf.Graph()) as session:
            names = {device.name for device in session.list_devices()}
        assert {device.name for device in cluster.devices} <= names
        assert workers.death() is None
    assert all(map(is_gone, pids))


@pytest.mark.medium
def test_no_worker_survives_a_killed_parent():
    script = textwrap.dedent(
        """
        import time
        from tf_placer.cluster.cluster import Cluster
        from tf_placer.workers.local_workers import LocalWorkers
        workers = LocalWorkers(Cluster.local(2))
        workers.start()
        print(*workers.pids, flush=True)
        time.sleep(600)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert pids and all(os.path.exists(f"/proc/{pid}") for pid in pids)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert all(map(is_gone, pids))


@pytest.mark.medium
def test_a_worker_may_print_before_and_after_it_is_ready(monkeypatch, tmp_path):
    talkative = tmp_path / "talkative.py"
    source = Path(worker_process.__file__).read_text()
    source = source.replace("def main()", "print('a banner', flush=True)\n\n\ndef main()")
    talkative.write_text(
        source.replace("    server.join()", "    print('x' * 10**6, flush=True)\n    server.join()")
    )
    monkeypatch.setattr("tf_placer.workers.worker_process.__file__", str(talkative))
    with (
        LocalWorkers(Cluster.local(1)) as workers,
        tf.compat.v1.Session(workers.target, graph=tf.Graph()) as session,
    ):
        assert session.list_devices()


def test_a_worker_that_cannot_start_says_why(monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no TensorFlow here')\n")
    monkeypatch.setattr("tf_placer.workers.worker_process.__file__", str(broken))
    workers = LocalWorkers(Cluster.local(1))
    with pytest.raises(WorkerError, match="no TensorFlow here"):
        workers.start()
    assert workers.pids == ()
