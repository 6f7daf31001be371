"""A device is given less memory by its name in whole or in part, and never more."""

import dataclasses

import pytest

import tf_placer
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import limits_by_device, limits_of_texts
from tf_placer.cluster.device import Link


def test_a_limit_caps_one_device_and_leaves_the_rest():
    cluster = tf_placer.Cluster.preset("p100x2")
    limited = cluster.with_memory_limit({"GPU:1": "10GB", "/device:CPU:0": 4096})
    assert [device.memory_bytes for device in limited.devices] == [
        cluster.devices[0].memory_bytes,
        10 * 10**9,
        4096,
    ]
    assert limited.links == cluster.links
    assert limited.fingerprint() != cluster.fingerprint()
    assert cluster.with_memory_limit({}) == cluster


def test_a_limit_is_never_above_what_the_device_has():
    cluster = tf_placer.Cluster.preset("p100x2")
    has = cluster.devices[0].memory_bytes
    assert cluster.with_memory_limit({"GPU:0": has}) == cluster
    with pytest.raises(InputError, match=rf"GPU:0 has {has} bytes .* give no more than it has"):
        cluster.with_memory_limit({"GPU:0": has + 1})


def test_a_name_must_mean_one_device():
    one = tf_placer.Cluster.preset("p100x2").devices[2]
    names = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 1)]
    devices = tuple(dataclasses.replace(one, name=name) for name in names)
    links = tuple(Link(a, 1 - a, 0, 1e9, f"{a}") for a in (0, 1))
    cluster = tf_placer.Cluster("two workers", devices, links)
    assert cluster.with_memory_limit({"/task:1/device:CPU:0": "1MB"}).devices[1].memory_bytes == 10**6
    with pytest.raises(InputError, match="more than one device"):
        cluster.with_memory_limit({"CPU:0": "1MB"})
    with pytest.raises(InputError, match="are the same device"):
        cluster.with_memory_limit({"/task:1/device:CPU:0": 1, "/job:worker/task:1/device:CPU:0": 2})


def test_texts_name_the_flag():
    assert limits_of_texts("--memory_limit", ["GPU:0=10GB", "gpu:1=7"]) == {"GPU:0": 10**10, "gpu:1": 7}
    with pytest.raises(InputError, match=r"--memory_limit=GPU:0=2GB: GPU:0 has a limit already, 1GB"):
        limits_of_texts("--memory_limit", ["GPU:0=1GB", "GPU:0=2GB"])
    with pytest.raises(InputError, match=r"--memory_limit: '1 cup' is no size"):
        limits_of_texts("--memory_limit", ["GPU:0=1 cup"])
    with pytest.raises(InputError, match=r"memory_limit: .*'a' is not a TensorFlow device name"):
        limits_by_device("memory_limit", {"a": 1})


def test_a_limit_is_kept_by_the_search():
    # 2 ops of 100 resident bytes each: a device of 150 bytes takes one of them.
    cluster = tf_placer.Cluster.preset("p100x2").with_memory_limit({"GPU:0": 150, "GPU:1": 150})
    problem = tf_placer.Problem.from_arrays(
        compute_ns=[[1000, 1000, 10**9]] * 2,
        edges=[[0, 1]],
        edge_bytes=[0],
        resident_bytes=[100, 100],
        output_bytes=[0, 0],
        allowed=[[True, True, True]] * 2,
        cluster=cluster,
    )
    result = tf_placer.search(problem, "local_search", budget_evaluations=64)
    assert sorted(result.placement.device_of_unit) == [0, 1]
