"""Devices by hand: like ones differ in their number alone."""

import math

import numpy as np

from tests.tf_placer.problem.small_problems import small_cluster
from tf_placer.agents.features import (
    DEVICE_COLUMNS,
    DEVICE_NUMBERS,
    DEVICE_WIDTH,
    device_features,
    device_numbers,
)
from tf_placer.cluster.cluster import Cluster


def test_the_columns_cover_the_width_once():
    covered = [i for columns in DEVICE_COLUMNS.values() for i in range(columns.start, columns.stop)]
    assert covered == list(range(DEVICE_WIDTH))


def test_a_preset_by_hand():
    cluster = Cluster.preset("k40x2")
    rows = device_features(cluster)
    gpu, _, cpu = cluster.devices
    assert rows.shape == (3, DEVICE_WIDTH) and rows.dtype == np.float32
    column = {name: rows[:, columns] for name, columns in DEVICE_COLUMNS.items()}
    assert column["type"].tolist() == [[0, 1], [0, 1], [1, 0]]  # CPU, GPU
    flops = math.log10(cpu.peak_flops / gpu.peak_flops)
    assert flops < 0
    np.testing.assert_allclose(column["flops"][:, 0], [0, 0, flops], rtol=1e-5)
    memory = math.log10(gpu.memory_bytes / cpu.memory_bytes)
    np.testing.assert_allclose(column["capacity"][:, 0], [memory, memory, 0], rtol=1e-5)
    np.testing.assert_allclose(column["launch"][0], math.log10(1 + gpu.launch_ns) / 5, rtol=1e-5)
    np.testing.assert_allclose(column["streams"][:, 0], [0, 0, math.log2(cpu.streams) / 4], rtol=1e-5)
    # The two GPUs are alike, and numbered behind all CPUs.
    np.testing.assert_array_equal(rows[0], rows[1])
    assert device_numbers(cluster).tolist() == [64, 65, 0]


def test_the_most_devices_have_a_number_each():
    cluster = small_cluster(64)
    assert len(np.unique(device_features(cluster), axis=0)) == 1
    assert device_numbers(cluster).tolist() == list(range(64, DEVICE_NUMBERS))


def test_a_device_without_links_has_features():
    rows = device_features(small_cluster(1))
    assert np.isfinite(rows).all()
    assert rows[0, DEVICE_COLUMNS["latency"]] == rows[0, DEVICE_COLUMNS["bandwidth"]] == 0
