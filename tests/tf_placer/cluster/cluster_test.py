"""Cluster: presets, words for one, the simulator's arrays, logical devices, memory limits, writing back to TOML."""

import dataclasses
import os

import numpy as np
import pytest

import tf_placer
from tests.refused import refused
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.cluster.cluster import (
    Cluster,
    Device,
    Link,
    choose_cluster,
    limits_by_device,
    limits_of_texts,
    local_cores,
)
from tf_placer.cluster.device import device_labels, preset_names

_PRESETS = (
    "a100x2", "a100x2_nvlink", "a100x4", "a100x4_nvlink", "a100x8", "a10x2", "h100x2", "h100x2_nvlink", "h100x4",
    "h100x4_nvlink", "h100x8", "k40x2", "k40x4", "k40x8", "k80x2", "k80x4", "l4x2", "p100x1", "p100x2", "p100x4",
    "p100x8", "rtx3090x2", "rtx4090x2", "t4x2", "v100x4",
)  # fmt: skip


def _device(index: int) -> Device:
    return Device(f"/job:localhost/replica:0/task:0/device:GPU:{index}", "GPU", "k40", 8, 1, 1e12, 1e11, 5)


def test_presets_are_the_documented_ones():
    assert preset_names() == _PRESETS


@pytest.mark.parametrize("name", _PRESETS)
def test_preset_has_its_gpus_first_and_the_host_cpu_last(name):
    cluster = Cluster.preset(name)
    model, _, count = name.removesuffix("_nvlink").rpartition("x")
    assert [d.model.removesuffix("_pcie") for d in cluster.devices[:-1]] == [model] * int(count)
    assert cluster.devices[0].name == "/job:localhost/replica:0/task:0/device:GPU:0"
    assert cluster.devices[-1].name == "/job:localhost/replica:0/task:0/device:CPU:0"
    assert (cluster.name, cluster.kind) == (name, "described")
    assert len(cluster.links) == len(cluster.devices) * (len(cluster.devices) - 1)


def test_gpus_of_one_board_share_the_uplink_but_not_their_own_lanes():
    channel = Cluster.preset("k80x2").channel_of_link()  # devices GPU:0, GPU:1, CPU:0
    assert channel[0, 2] == channel[1, 2], "both GPUs of a K80 board go up the same slot"
    assert channel[2, 0] == channel[2, 1], "and down the same slot"
    assert len({channel[0, 1], channel[1, 0], channel[0, 2], channel[2, 0]}) == 4


def test_gpus_of_two_switches_meet_on_the_uplink_of_the_sender():
    channel = Cluster.preset("k40x8").channel_of_link()  # GPU:0 to 3, GPU:4 to 7, CPU:0
    cpu, switches = 8, ((0, 1, 2, 3), (4, 5, 6, 7))
    for here, there in (switches, switches[::-1]):
        uplink = {channel[gpu, target] for gpu in here for target in (*there, cpu)}
        assert len(uplink) == 1, "to the host and to the other switch, all go up the same slot"
        assert len({channel[cpu, gpu] for gpu in here}) == 1, "and what the host sends comes down the same"
        for gpu in here:
            lanes = {channel[gpu, other] for other in here if other != gpu}
            assert len(lanes) == 1, "below its switch a GPU sends on its own lanes"
            assert lanes.isdisjoint(uplink)
    # A sender's lanes for each of 8 GPUs; up and down for each of 2 switches.
    assert len(np.unique(channel[channel >= 0])) == 8 + 2 + 2


def test_nvlinks_join_each_pair_alone_and_the_host_is_reached_by_one_uplink():
    cluster = Cluster.preset("v100x4")
    channel = cluster.channel_of_link()  # GPU:0 to 3, CPU:0
    gpus, cpu = range(4), 4
    wires = [channel[a, b] for a in gpus for b in gpus if a != b]
    assert len(set(wires)) == 12, "every pair has wires of its own, each way"
    assert len({channel[gpu, cpu] for gpu in gpus}) == len({channel[cpu, gpu] for gpu in gpus}) == 1
    assert len({channel[0, cpu], channel[cpu, 0], *wires}) == 12 + 2
    # NVLink between the GPUs and PCIe to the host; numbers of models.toml.
    bytes_per_s = cluster.link_bytes_per_s()
    assert {int(bytes_per_s[a, b]) for a in gpus for b in gpus if a != b} == {47_900_000_000}
    assert {int(bytes_per_s[a, cpu]) for a in gpus} == {int(bytes_per_s[cpu, a]) for a in gpus}
    assert bytes_per_s[0, cpu] == 10_000_000_000


def test_arrays_hold_the_links_of_a_hand_written_cluster():
    links = (Link(1, 0, 7, 3e9, "b"), Link(0, 1, 5, 2e9, "a"))
    cluster = Cluster("two", (_device(0), _device(1)), links)
    np.testing.assert_array_equal(cluster.capacity_bytes(), np.array([8, 8], np.int64))
    np.testing.assert_array_equal(cluster.streams(), np.array([1, 1], np.int32))
    np.testing.assert_array_equal(cluster.link_latency_ns(), [[0, 5], [7, 0]])
    np.testing.assert_array_equal(cluster.link_bytes_per_s(), [[1, 2_000_000_000], [3_000_000_000, 1]])
    # Numbered by (row, column), so 0 -> 1 comes first although it is listed second.
    np.testing.assert_array_equal(cluster.channel_of_link(), [[-1, 0], [1, -1]])
    assert cluster.link_latency_ns().dtype == cluster.link_bytes_per_s().dtype == np.int64
    assert cluster.channel_of_link().dtype == np.int32


def test_a_cluster_of_one_device_needs_no_link():
    assert Cluster("one", (_device(0),), ()).channel_of_link().tolist() == [[-1]]


@pytest.mark.parametrize(
    ("devices", "links", "message"),
    [
        ((), (), "0 devices; give 1 to 64"),
        ((_device(0), _device(0)), (), "listed twice"),
        ((_device(0), _device(1)), (Link(0, 1, 1, 1.0, "a"),), "no link .*GPU:1 -> .*GPU:0"),
        ((_device(0),), (Link(0, 0, 1, 1.0, "a"),), "to itself"),
        ((_device(0),), (Link(0, 3, 1, 1.0, "a"),), "outside"),
    ],
)
def test_a_broken_cluster_is_refused(devices, links, message):
    with refused(message):
        Cluster("broken", devices, links)


@pytest.mark.parametrize("name", ["k80x4", "v100x4"])
def test_written_toml_reads_back_as_the_same_cluster(name, tmp_path):
    cluster = Cluster.preset(name)
    path = tmp_path / "copy.toml"
    path.write_text(cluster.to_toml())
    copy = Cluster.from_file(path)
    assert copy.devices == cluster.devices
    assert sorted(copy.links, key=repr) == sorted(cluster.links, key=repr)
    assert copy.fingerprint() == cluster.fingerprint()


def test_logical_cluster_survives_toml_although_its_model_is_not_listed(tmp_path):
    path = tmp_path / "logical.toml"
    path.write_text(Cluster.logical(2).to_toml())
    assert Cluster.from_file(path).devices == Cluster.logical(2).devices


def test_fingerprint_depends_on_every_number_and_not_on_the_name():
    cluster = Cluster.preset("p100x2")
    assert dataclasses.replace(cluster, name="other").fingerprint() == cluster.fingerprint()
    (first, *others), latency_ns = cluster.links, cluster.links[0].latency_ns + 1
    changed = dataclasses.replace(cluster, links=(dataclasses.replace(first, latency_ns=latency_ns), *others))
    assert changed.fingerprint() != cluster.fingerprint()


def test_logical_devices_are_this_process_cpus():
    cluster = Cluster.logical(3)
    names = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(3)]
    assert [d.name for d in cluster.devices] == names and cluster.kind == "logical"


def test_labels_are_as_long_as_it_takes():
    gpus = [f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2)]
    assert device_labels(gpus) == ("GPU:0", "GPU:1")
    workers = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2)]
    assert device_labels(workers) == ("task 0 CPU:0", "task 1 CPU:0")
    assert device_labels(["first", "second"]) == ("first", "second")
    streams = [f"{gpus[0]}/stream:{name}" for name in ("all", "1")]
    assert device_labels(streams) == ("GPU:0/stream:all", "GPU:0/stream:1")
    assert device_labels(["GPU:0", "second"]) == ("GPU:0", "second")


def test_presets_and_files(tmp_path):
    assert choose_cluster("p100x2", "here").fingerprint() == tf_placer.Cluster.preset("p100x2").fingerprint()
    file = tmp_path / "box.toml"
    file.write_text(tf_placer.Cluster.preset("k40x2").to_toml())
    assert choose_cluster(str(file), "here").num_devices == 3


def test_local_workers():
    assert local_cores("local", "here") is None
    assert local_cores("p100x2", "here") is None
    assert local_cores("local:1", "here") == 1
    assert choose_cluster("local:1", "here").num_devices == 1


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("local:two", "here: 'two' is no number of CPU workers; write local:2"),
        ("local:", "here: '' is no number of CPU workers"),
        ("local:0", "here: cores=0, but this process may use"),
        (f"local:{'9' * 9000}", "here: "),
        ("p100x3", "here: unknown cluster preset 'p100x3'; did you mean"),
        ("nowhere.toml", "here: cannot read the cluster file"),
        ("localhost", "here: unknown cluster preset 'localhost'"),
    ],
)
def test_what_is_refused_says_how_it_was_given(word, message):
    with refused() as error:
        choose_cluster(word, "here")
    assert str(error.value).startswith(message)


def test_auto_place_takes_the_words_of_the_command_line(tmp_path):
    file, text = tmp_path / "servers.toml", tf_placer.Cluster.preset("p100x1").to_toml()
    file.write_text(text.replace('type = "', 'address = "127.0.0.1:1"\ntype = "'))
    assert AutoPlaceConfig(cluster="local:1").chosen_cluster().num_devices == 1
    assert AutoPlaceConfig(cluster=str(file)).chosen_cluster().kind == "remote"


def test_auto_place_probes_nothing_before_its_first_call(monkeypatch):
    monkeypatch.setattr("tf_placer.cluster.cluster._run_probe", None)
    for word in ("local", f"local:{len(os.sched_getaffinity(0))}"):
        assert AutoPlaceConfig(cluster=word).cluster == word


def test_a_limit_caps_one_device_and_leaves_the_rest():
    cluster = tf_placer.Cluster.preset("p100x2")
    limited = cluster.with_memory_limit({"GPU:1": "10GB", "/device:CPU:0": 4096})
    expected = [cluster.devices[0].memory_bytes, 10 * 10**9, 4096]
    assert [device.memory_bytes for device in limited.devices] == expected
    assert limited.links == cluster.links
    assert limited.fingerprint() != cluster.fingerprint()
    assert cluster.with_memory_limit({}) == cluster


def test_a_limit_is_never_above_what_the_device_has():
    cluster = tf_placer.Cluster.preset("p100x2")
    has = cluster.devices[0].memory_bytes
    assert cluster.with_memory_limit({"GPU:0": has}) == cluster
    with refused(rf"GPU:0 has {has} bytes .* give no more than it has"):
        cluster.with_memory_limit({"GPU:0": has + 1})


def test_a_name_must_mean_one_device():
    one = tf_placer.Cluster.preset("p100x2").devices[2]
    names = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 1)]
    devices = tuple(dataclasses.replace(one, name=name) for name in names)
    links = tuple(Link(a, 1 - a, 0, 1e9, f"{a}") for a in (0, 1))
    cluster = tf_placer.Cluster("two workers", devices, links)
    assert cluster.with_memory_limit({"/task:1/device:CPU:0": "1MB"}).devices[1].memory_bytes == 10**6
    with refused("more than one device"):
        cluster.with_memory_limit({"CPU:0": "1MB"})
    with refused("are the same device"):
        cluster.with_memory_limit({"/task:1/device:CPU:0": 1, "/job:worker/task:1/device:CPU:0": 2})


def test_texts_name_the_flag():
    assert limits_of_texts("--memory_limit", ["GPU:0=10GB", "gpu:1=7"]) == {"GPU:0": 10**10, "gpu:1": 7}
    with refused(r"--memory_limit=GPU:0=2GB: GPU:0 has a limit already, 1GB"):
        limits_of_texts("--memory_limit", ["GPU:0=1GB", "GPU:0=2GB"])
    with refused(r"--memory_limit: '1 cup' is no size"):
        limits_of_texts("--memory_limit", ["GPU:0=1 cup"])
    with refused(r"memory_limit: .*'a' is not a TensorFlow device name"):
        limits_by_device("memory_limit", {"a": 1})


def test_a_limit_is_kept_by_the_search():
    # 2 ops of 100 resident bytes each: a device of 150 bytes takes one of them.
    cluster = tf_placer.Cluster.preset("p100x2").with_memory_limit({"GPU:0": 150, "GPU:1": 150})
    problem = problem_of([[1000, 1000, 10**9]] * 2, [(0, 1)], 0, cluster, resident_bytes=100)
    result = tf_placer.search(problem, "local_search", budget_evaluations=64)
    assert sorted(result.placement.device_of_unit) == [0, 1]
