"""What a step needs that no single device holds, and the smallest machine that would do."""

from __future__ import annotations

import pytest

import tf_placer
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.search.room import room_needed
from tf_placer.search.search import NothingFits

GB = 10**9


def chain(sizes_gb: list[int], cluster: tf_placer.Cluster) -> tf_placer.Problem:
    """Ops in a row that hold so many gigabytes each, and nothing else."""
    return problem_of(
        [[1000] * cluster.num_devices] * len(sizes_gb),
        [[i, i + 1] for i in range(len(sizes_gb) - 1)],
        cluster=cluster,
        resident_bytes=[gb * GB for gb in sizes_gb],
        names=[f"layer{i}" for i in range(len(sizes_gb))],
    )


def test_what_one_device_holds_needs_no_room():
    assert room_needed(chain([1, 2], tf_placer.Cluster.preset("k40x2"))) is None


def test_needs_and_largest_holders_are_told_in_bytes():
    # 14 GB on a K40 of 11.4; a P100 has 15.9 or so, which is the smallest that does.
    room = room_needed(chain([1, 5, 2, 6], tf_placer.Cluster.preset("k40x2")))
    assert room is not None
    assert room.needed_bytes == 14 * GB
    assert list(room.holders.items()) == [("layer3", 6 * GB), ("layer1", 5 * GB), ("layer2", 2 * GB)]
    assert room.preset == "p100x1"
    assert "would need 13.0 GiB (14000000000 bytes)" in str(room)
    assert str(room).endswith("whose accelerators hold the step is p100x1")


def test_none_of_the_machines_is_said_so():
    room = room_needed(chain([900, 100], tf_placer.Cluster.preset("k40x2")))
    assert room is not None and room.preset is None
    assert str(room).endswith("no described machine holds the step on its accelerators")


def test_the_error_of_a_search_says_it_too():
    cluster = tf_placer.Cluster.preset("k40x2").with_memory_limit({"CPU:0": 1})
    with pytest.raises(NothingFits) as error:
        tf_placer.search(chain([12, 12], cluster), "random", budget_evaluations=4)
    told = str(error.value)
    assert "24000000000 bytes" in told and "'layer0'" in told and "\n" not in told
    assert "the smallest described machine whose accelerators hold the step is p100x2" in told
