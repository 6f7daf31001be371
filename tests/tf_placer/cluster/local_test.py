"""The local cluster: what it says of this machine, and that its workers never outlive their owner."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import tensorflow as tf

from tf_placer.cluster import gpu_probe, local
from tf_placer.cluster.cluster import Cluster, Link
from tf_placer.cluster.local import PROBED_SHARES, local_devices
from tf_placer.costs.efficiency import EFFICIENCY_OF_TYPE
from tf_placer.costs.work import Kind
from tf_placer.errors import InputError
from tf_placer.workers import worker_process
from tf_placer.workers.local_workers import LocalWorkers, WorkerError

REPOSITORY = Path(__file__).resolve().parents[3]


def _local_cluster(cores: int | None = None) -> Cluster:
    return Cluster("local", *local_devices(cores or len(os.sched_getaffinity(0))), kind="local")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_dead(pids, timeout_s: float) -> list[int]:
    """Waits until the processes are gone; returns those that are not."""
    deadline = time.monotonic() + timeout_s
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [pid for pid in pids if _alive(pid)]


def test_a_kept_cluster_is_the_same_for_a_later_process(monkeypatch, tmp_path):
    file = tmp_path / "deep" / "cluster.toml"
    first = Cluster.local(kept_in=file)
    # As in another process: other probes, other free memory.
    monkeypatch.setattr(local, "_available_memory_bytes", lambda: 10**9)
    assert Cluster.local().fingerprint() != first.fingerprint()
    second = Cluster.local(kept_in=file)
    assert second.fingerprint() == first.fingerprint()
    assert (second.name, second.kind, second.devices) == (first.name, first.kind, first.devices)
    assert Cluster.from_file(file).kind == "described", "only who asks for this machine gets its workers"
    other = len(first.devices) + 1
    with pytest.raises(InputError, match=f"cluster.toml holds {other - 1} devices, not cores={other}"):
        Cluster.local(cores=other, kept_in=file)


def test_one_device_per_core_and_a_link_each_way():
    cluster = _local_cluster()
    cores = len(os.sched_getaffinity(0))
    assert cluster.kind == "local"
    assert [device.name for device in cluster.devices] == [
        f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(cores)
    ]
    pairs = {(link.source, link.target) for link in cluster.links}
    assert pairs == {(a, b) for a in range(cores) for b in range(cores) if a != b}
    assert len({link.channel for link in cluster.links}) == len(cluster.links)
    # A core of any machine of this century does 0.1 GFLOP/s and none does 10 TFLOP/s.
    assert 1e8 < cluster.devices[0].peak_flops < 1e13
    assert 1e8 < cluster.devices[0].memory_bytes_per_s < 1e13
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < sum(device.memory_bytes for device in cluster.devices) < total_bytes


@pytest.mark.parametrize("cores", [0, 10_000])
def test_a_number_of_cores_that_is_not_there_is_refused(cores):
    with pytest.raises(InputError, match=f"cores={cores}"):
        local_devices(cores)


def test_gpus_come_before_the_host_cpu(monkeypatch):
    gpu = {
        "memory_bytes": 1 << 34,
        "peak_flops": 1.234e13,
        "memory_bytes_per_s": 9.87e11,
        "model": "Tesla T9",
    }
    monkeypatch.setattr(local, "_probe_gpus", lambda: [gpu, gpu])
    monkeypatch.setattr(local.glob, "glob", lambda pattern: ["/dev/nvidia0", "/dev/nvidia1"])
    cluster = Cluster("local", *local_devices(), kind="local")
    assert [device.name for device in cluster.devices] == [
        f"/job:worker/replica:0/task:0/device:{name}" for name in ("GPU:0", "GPU:1", "CPU:0")
    ]
    assert cluster.devices[0].peak_flops == 1.8e13  # 1.234e13 / 0.7, two digits
    assert cluster.devices[0].model == "local_tesla_t9"
    assert cluster.devices[2].streams == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("file", ["/proc/cluster.toml", "{tmp}/file/cluster.toml"])
def test_a_cluster_that_cannot_be_kept_is_told_before_the_machine_is_probed(monkeypatch, tmp_path, file):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tf_placer.cluster.cluster.local_devices", lambda cores: pytest.fail("probed"))
    with pytest.raises(InputError, match=r"^kept_in=.*cluster\.toml: .*; give another folder"):
        Cluster.local(kept_in=file.format(tmp=tmp_path))


@pytest.mark.parametrize("device_type", ["CPU", "GPU"])
def test_what_a_probe_reaches_is_what_the_cost_model_charges(device_type):
    efficiency = EFFICIENCY_OF_TYPE[device_type]
    charged = (efficiency[Kind.MATRIX_PRODUCT].compute, efficiency[Kind.STREAMING].memory)
    assert charged == PROBED_SHARES[device_type]


def test_the_gpu_probe_measures_any_device_type():
    # There may be no GPU here; the host CPU stands for one.
    command = [sys.executable, "-P", gpu_probe.__file__, "CPU", "256"]
    (report,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert report["memory_bytes"] > 0
    assert 1e8 < report["peak_flops"] < 1e14
    assert 1e7 < report["memory_bytes_per_s"] < 1e14


def test_described_hardware_cannot_be_started():
    cluster = Cluster("paper", _local_cluster(1).devices, (), kind="described")
    with pytest.raises(InputError, match="'paper' is described"):
        LocalWorkers(cluster)


def test_more_workers_than_cores_are_refused():
    (device,), _ = local_devices(1)
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


def test_no_worker_survives_a_killed_parent():
    script = textwrap.dedent(
        """
        import time
        from tf_placer.cluster.cluster import Cluster
        from tf_placer.cluster.local import local_devices
        from tf_placer.workers.local_workers import LocalWorkers
        workers = LocalWorkers(Cluster("local", *local_devices(2), kind="local"))
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
    assert not _wait_dead(pids, timeout_s=10.0)


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
