"""The ring's time is that of its rounds: latency, bytes, and what the devices' own memory takes."""

import dataclasses

import pytest

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device, Link
from tf_placer.data_parallel.data_parallel import all_gather_s, all_reduce_s, replicas_of


def cluster(count: int, shared: bool = False, **link: int) -> Cluster:
    """GPUs with links of 1 us and 1 GB/s between all, on a channel each or on one; memory of 1 TB/s."""
    devices = tuple(
        Device(f"/job:localhost/replica:0/task:0/device:GPU:{i}", "GPU", "p100", 1 << 30, 1, 1e12, 1e12, 0)
        for i in range(count)
    )
    links = tuple(
        Link(a, b, 1000, 1e9, "bus" if shared else f"{a} {b}", **link)
        for a in range(count)
        for b in range(count)
        if a != b
    )
    return Cluster("ring", devices, links)


def test_two_devices() -> None:
    # Two rounds of 0.5 MB in 1 us + 0.5 ms; one sum of 0.5 MB reads and writes 1.5 MB; 6 MB to pack, divide, unpack.
    assert all_reduce_s(cluster(2), [0, 1], 10**6) == pytest.approx(2 * 501e-6 + 1.5e-6 + 6e-6)


def test_four_devices_send_six_rounds_of_a_quarter() -> None:
    expected_s = 6 * 251e-6 + 3 * 0.75e-6 + 6e-6
    assert all_reduce_s(cluster(4), [0, 1, 2, 3], 10**6) == pytest.approx(expected_s)


def test_those_on_one_channel_queue() -> None:
    assert all_gather_s(cluster(2, shared=True), [0, 1], 10**6) == pytest.approx(2 * 1001e-6)
    assert all_gather_s(cluster(2), [0, 1], 10**6) == pytest.approx(1001e-6)


def test_what_the_ends_do_counts() -> None:
    ends = {"send_ns": 500, "receive_ns": 200, "send_ps_per_byte": 100, "receive_ps_per_byte": 50}
    assert all_gather_s(cluster(2, **ends), [0, 1], 10**6) == pytest.approx(1001e-6 + 0.7e-6 + 150e-6)


def test_the_slowest_link_decides() -> None:
    fast = cluster(2)
    slow = dataclasses.replace(fast.links[1], bytes_per_s=1e8)
    assert all_gather_s(
        dataclasses.replace(fast, links=(fast.links[0], slow)), [0, 1], 10**6
    ) == pytest.approx(10.001e-3)


def test_the_host_of_a_preset_is_no_replica() -> None:
    assert replicas_of(Cluster.preset("p100x4").devices) == (0, 1, 2, 3)
    assert replicas_of(Cluster.logical(3).devices) == (0, 1, 2)
