"""Local workers: pinned, reached by a session, and never outliving their owner."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster, Link
from tf_placer.workers import worker_process
from tf_placer.workers.local_workers import LocalWorkers, WorkerError, workers_of

REPOSITORY = Path(__file__).resolve().parents[3]


def _local_cluster(cores: int | None = None) -> Cluster:
    return Cluster.local(cores or len(os.sched_getaffinity(0)))


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_described_hardware_cannot_be_started():
    cluster = Cluster("paper", _local_cluster(1).devices, (), kind="described")
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
    cluster = _local_cluster()
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
    assert not any(map(_alive, pids))


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
    assert pids and all(map(_alive, pids))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 60.0
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_alive, pids))


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
        LocalWorkers(_local_cluster(1)) as workers,
        tf.compat.v1.Session(workers.target, graph=tf.Graph()) as session,
    ):
        assert session.list_devices()


def test_a_worker_that_cannot_start_says_why(monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no TensorFlow here')\n")
    monkeypatch.setattr("tf_placer.workers.worker_process.__file__", str(broken))
    workers = LocalWorkers(_local_cluster(1))
    with pytest.raises(WorkerError, match="no TensorFlow here"):
        workers.start()
    assert workers.pids == ()
