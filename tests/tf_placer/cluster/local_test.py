"""The local cluster: what it says of this machine."""

import json
import os
import subprocess
import sys

import pytest

from tf_placer.base.arguments import InputError
from tf_placer.cluster import local, probe
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device
from tf_placer.cluster.local import PROBED_SHARES, local_devices
from tf_placer.costs.formulas import WorkClass
from tf_placer.costs.shares import efficiencies


def _local_cluster(cores: int | None = None) -> Cluster:
    return Cluster("local", *local_devices(cores or len(os.sched_getaffinity(0))), kind="local")


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
    core = {"peak_flops": 1e11, "memory_bytes_per_s": 1e10}
    probed = {"devices": [gpu, gpu], "core": core}
    monkeypatch.setattr(local, "_run_probe", lambda kind, *_: probed[kind])
    monkeypatch.setattr(local.glob, "glob", lambda pattern: ["/dev/nvidia0", "/dev/nvidia1"])
    cluster = Cluster("local", *local_devices(), kind="local")
    assert [device.name for device in cluster.devices] == [
        f"/job:worker/replica:0/task:0/device:{name}" for name in ("GPU:0", "GPU:1", "CPU:0")
    ]
    assert cluster.devices[0].peak_flops == 1.5e13  # 1.234e13 / 0.83, two digits
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
    device = Device("GPU:0", device_type, "local", 1, 1, 1e12, 1e11, 0)
    found = efficiencies(device.type, device.model)
    charged = (found.compute[WorkClass.PRODUCT_WIDE], found.memory[WorkClass.STREAMING])
    assert charged == PROBED_SHARES[device_type]


@pytest.mark.medium
def test_the_probe_measures_any_device_type():
    # There may be no GPU here; the host CPU stands for one.
    command = [sys.executable, "-P", probe.__file__, "devices", "CPU", "256"]
    (report,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert report["memory_bytes"] > 0
    assert 1e8 < report["peak_flops"] < 1e14
    assert 1e7 < report["memory_bytes_per_s"] < 1e14
