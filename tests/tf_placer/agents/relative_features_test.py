"""Relative features by hand; and what must not matter to them does not."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.agents.features import RELATIVE_COLUMNS, RELATIVE_WIDTH, relative_features
from tf_placer.problem.unit_graph import unit_graph


@pytest.fixture
def problem():
    """a (10) -> b (50, or 150 on device 1) -> d (5), a -> c (20) -> d; edges of 90 bytes take 100 ns."""
    return problem_of(
        [[10, 10], [50, 150], [20, 20], [5, 5]],
        [(0, 1), (0, 2), (1, 3), (2, 3)],
        edge_bytes=90,
        resident_bytes=np.array([0, 500, 1500, 0]),
        output_bytes=90,
        cluster=small_cluster(2, memory_bytes=1000),
        allowed=np.array([[True, True], [True, True], [True, False], [True, True]]),
    )


def column(problem, name):
    features = relative_features(problem, unit_graph(problem))
    assert features.shape == (problem.num_units, RELATIVE_WIDTH) and features.dtype == np.float32
    return features[:, RELATIVE_COLUMNS[name]]


def share(*amounts):
    return 1 + np.log10(np.maximum(amounts, 1e-6)) / 6


def test_every_column_by_hand(problem):
    # The critical path is a b d = 65; all work is 85; both devices hold 2000 bytes, one holds 1000.
    by_hand = {
        "top": np.array([0, 10, 10, 60]) / 65,
        "bottom": np.array([65, 55, 25, 5]) / 65,
        "slack": np.array([0, 0, 30, 0]) / 65,
        "work": share(10 / 65, 50 / 65, 20 / 65, 5 / 65),
        "slowdown": [0, np.log10(100 / 50) / 3, 0, 0],
        "resident": share(0, 0.25, 0.75, 0),
        "choice": [1, 1, 0.5, 1],
        "in_time": share(0, 100 / 65, 100 / 65, 200 / 65),
        "out_time": share(200 / 65, 100 / 65, 100 / 65, 0),
        "in_degree": np.log2([1, 2, 2, 3]) / 8,
        "out_degree": np.log2([3, 2, 2, 1]) / 8,
        "parallelism": np.full(4, np.log2(85 / 65) / 4),
        "message": np.full(4, share(10 / 65)[0]),
        "devices": np.full(4, 0.25),
    }
    for name, values in by_hand.items():
        np.testing.assert_allclose(column(problem, name), values, rtol=1e-5, atol=1e-6, err_msg=name)
    assert set(RELATIVE_COLUMNS) - set(by_hand) == {"held", "pressure"}  # below


def test_pressure_is_what_is_held_and_ends_at_four(problem):
    held = column(problem, "held")
    bytes_held = np.where(held > 0, 10 ** ((held - 1) * 6) * 2000, 0).sum()
    assert bytes_held > 0
    np.testing.assert_allclose(column(problem, "pressure"), (2000 + bytes_held) / 1000, rtol=1e-3)
    assert column(dataclasses.replace(problem, resident_bytes=np.full(4, 10**6)), "pressure")[0] == 4


def test_a_slower_machine_is_the_same_problem():
    """Ten times slower ops on ten times slower links: nothing relative has changed."""

    def scaled(factor):
        cluster = small_cluster(3)
        links = tuple(
            dataclasses.replace(
                link, latency_ns=link.latency_ns * factor, bytes_per_s=link.bytes_per_s / factor
            )
            for link in cluster.links
        )
        cluster = dataclasses.replace(cluster, links=links)
        return problem_of(np.array([10, 50, 20]) * factor, [(0, 1), (1, 2)], 90, cluster=cluster)

    one, ten = (relative_features(problem, unit_graph(problem)) for problem in (scaled(1), scaled(10)))
    np.testing.assert_allclose(one, ten, rtol=1e-6)


def test_the_numbers_of_units_do_not_matter(problem):
    """The same graph with b and c in the other order: the rows change places, and nothing else changes."""
    other = problem_of(
        [[10, 10], [20, 20], [50, 150], [5, 5]],
        [(0, 1), (0, 2), (1, 3), (2, 3)],
        edge_bytes=90,
        resident_bytes=np.array([0, 1500, 500, 0]),
        output_bytes=90,
        cluster=small_cluster(2, memory_bytes=1000),
        allowed=np.array([[True, True], [True, False], [True, True], [True, True]]),
    )
    # But for what is held: that depends on which of the two is run first.
    others = [column for name, column in RELATIVE_COLUMNS.items() if name != "held"]
    rows = [relative_features(one, unit_graph(one))[:, others] for one in (problem, other)]
    np.testing.assert_allclose(rows[0][[0, 2, 1, 3]], rows[1], rtol=1e-6)


def test_one_device_without_links():
    alone = problem_of([1, 2], [(0, 1)], 5, cluster=small_cluster(1))
    features = relative_features(alone, unit_graph(alone))
    assert np.isfinite(features).all() and features[0, RELATIVE_COLUMNS["message"]] == 0
