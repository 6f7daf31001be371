"""Placing by rules of list scheduling: the C++ op equals the slow reference, and says what it is not given right."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles.list_policy import reference_place_by_list
from tf_placer.agents.learned_list.learned_list import (
    CONTEXT,
    FEATURES,
    NUM_COEFFICIENTS,
    ORDER,
    ListInputs,
    place_by_list,
)

NUM_PROBLEMS = 300


def random_list_inputs(rng: np.random.Generator) -> ListInputs:
    nodes, devices, bins = int(rng.integers(1, 16)), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    legal = rng.random((nodes, devices)) < 0.7
    legal[np.arange(nodes), rng.integers(devices, size=nodes)] = True
    flow = np.triu(rng.random((nodes, nodes)) * (rng.random((nodes, nodes)) < 0.4), k=1)
    here, there = np.nonzero(flow + flow.T)
    links = rng.random((2, devices, devices)) * (1 - np.eye(devices))
    return ListInputs(
        legal=legal,
        work=rng.random((nodes, devices)),
        slowness=rng.random((nodes, devices)),
        duration=rng.random((nodes, devices)) / nodes,
        memory=0.3 * rng.random((nodes, devices)),
        kind=rng.integers(nodes, size=nodes).astype(np.int32),
        window=rng.random((nodes, bins)),
        context=rng.normal(size=(nodes, len(CONTEXT))),
        order_features=rng.normal(size=(nodes, len(ORDER))),
        neighbor_offset=np.concatenate([[0], np.cumsum(np.bincount(here, minlength=nodes))]).astype(np.int32),
        neighbor=there.astype(np.int32),
        neighbor_bytes=3 * (flow + flow.T)[here, there],
        from_neighbor=rng.random(len(here)) < 0.5,
        link_fixed=0.01 * links[0],
        link_per_byte=0.1 * links[1],
    )


@pytest.mark.parametrize("chunk", range(3))
def test_op_equals_reference(chunk):
    for seed in range(chunk, NUM_PROBLEMS, 3):
        rng = np.random.default_rng(seed)
        inputs = random_list_inputs(rng)
        rules = rng.normal(size=(3, NUM_COEFFICIENTS))
        passes = int(rng.integers(1, 4))
        some = rng.random((3, len(inputs.legal))) < rng.choice([0.0, 0.5, 1.0])
        kept = np.where(some, inputs.legal.argmax(axis=1), -1).astype(np.int32)
        by_rule = zip(rules, kept, strict=True)
        expected = [reference_place_by_list(inputs, rule, passes, row) for rule, row in by_rule]
        placed = place_by_list(inputs, rules, passes, kept)
        np.testing.assert_array_equal(placed, expected, f"seed {seed}")
        if not some.any():
            np.testing.assert_array_equal(place_by_list(inputs, rules, passes), placed)


def of_one(feature: str, value: float) -> np.ndarray:
    """A rule [P] that looks at one feature, wherever it is."""
    rule = np.zeros((len(FEATURES), len(CONTEXT)))
    rule[FEATURES.index(feature), CONTEXT.index("one")] = value
    return np.append(rule, np.zeros(len(ORDER) - 1))


def plain(nodes: int, **changes: np.ndarray) -> ListInputs:
    """Equal nodes without edges on two devices."""
    context = np.zeros((nodes, len(CONTEXT)))
    context[:, CONTEXT.index("one")] = 1
    order = np.zeros((nodes, len(ORDER)))
    order[:, ORDER.index("place")] = np.arange(nodes)
    inputs = ListInputs(
        legal=np.ones((nodes, 2), bool),
        work=np.full((nodes, 2), 0.5),
        slowness=np.zeros((nodes, 2)),
        duration=np.full((nodes, 2), 0.1),
        memory=np.full((nodes, 2), 0.1),
        kind=np.arange(nodes, dtype=np.int32),
        window=np.ones((nodes, 1)),
        context=context,
        order_features=order,
        neighbor_offset=np.zeros(nodes + 1, np.int32),
        neighbor=np.zeros(0, np.int32),
        neighbor_bytes=np.zeros(0),
        from_neighbor=np.zeros(0, bool),
        link_fixed=np.zeros((2, 2)),
        link_per_byte=np.zeros((2, 2)),
    )
    return dataclasses.replace(inputs, **changes)


def placed(inputs: ListInputs, rule: np.ndarray, passes: int = 1) -> list[int]:
    return place_by_list(inputs, rule[np.newaxis], passes)[0].tolist()


def test_a_rule_does_what_its_feature_says():
    assert placed(plain(4), of_one("load", -1.0)) == [0, 1, 0, 1]  # where there is less to do
    assert placed(plain(4), of_one("last", 1.0)) == [0, 0, 0, 0]
    assert placed(plain(4), of_one("unused", 1.0)) == [0, 1, 0, 0]
    assert placed(plain(2, slowness=np.array([[1, 0], [0, 1.0]])), of_one("slowness", -1.0)) == [1, 0]
    # 1 would be done later where 0 is; 2 is like 0, and 3 like 1.
    assert placed(plain(2), of_one("finish", -1.0)) == [0, 1]
    alike = plain(4, kind=np.array([0, 1, 0, 1], np.int32))
    assert placed(alike, of_one("unused", 2.0) + of_one("alike", 1.0)) == [0, 1, 0, 1]
    # 0.9 and 0.1 of a device are more than 0.85 of it, for the second of two.
    assert placed(plain(2, memory=np.array([[0.9, 0.9], [0.1, 0.1]])), of_one("full", -1.0)) == [0, 1]


def test_a_node_goes_to_its_neighbor_and_comes_back_to_one_that_was_decided_later():
    # 0 has no choice; 1 reads from it; 2 has no choice and gives 1 more.
    ends = {"neighbor_offset": [0, 1, 3, 4], "neighbor": [1, 0, 2, 1], "neighbor_bytes": [5.0, 5.0, 9.0, 9.0]}
    arrays = {name: np.array(ends[name], float if "bytes" in name else np.int32) for name in ends}
    arrays["from_neighbor"] = np.array([False, True, True, False])
    legal = np.array([[1, 0], [1, 1], [1, 1]], bool)
    inputs = plain(3, legal=legal, slowness=np.array([[0, 0], [0, 0], [1, 0.0]]), **arrays)
    rule = of_one("affinity", 1.0) + of_one("slowness", -2.0)
    assert placed(inputs, rule) == [0, 0, 1]
    assert placed(inputs, rule, passes=2) == [0, 1, 1]


def test_the_order_is_a_part_of_the_rule():
    inputs = plain(2, work=np.array([[0.1, 0.1], [0.9, 0.9]]))
    inputs.order_features[:, ORDER.index("work")] = [0.1, 0.9]
    rule = of_one("load", -1.0)
    assert placed(inputs, rule) == [0, 1]
    rule[len(FEATURES) * len(CONTEXT)] = -2.0  # large ones first
    assert placed(inputs, rule) == [1, 0]


def test_no_node_and_no_rule():
    assert place_by_list(plain(0), of_one("load", 1.0)[np.newaxis], 1).shape == (1, 0)
    assert place_by_list(plain(3), np.zeros((0, NUM_COEFFICIENTS)), 1).shape == (0, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"work": np.zeros((3, 2))}, "work"),
        ({"context": np.zeros((2, 3))}, "context"),
        ({"window": np.zeros(2)}, "window: expected a matrix"),
        ({"legal": np.array([[True, False], [False, False]])}, "legal: node 1 has no device"),
        ({"neighbor_offset": np.array([0, 2, 1], np.int32)}, "neighbor_offset"),
        (
            {
                "neighbor_offset": np.array([0, 1, 1], np.int32),
                "neighbor": np.array([2], np.int32),
                "neighbor_bytes": np.ones(1),
                "from_neighbor": np.ones(1, bool),
            },
            "neighbor: 2 at 0 is no node",
        ),
        ({"kind": np.array([0, 2], np.int32)}, "kind: 2 at 1 is no number of a node"),
    ],
)
def test_what_is_wrong_is_named(changes, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        place_by_list(plain(2, **changes), of_one("load", 1.0)[np.newaxis], 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="coefficients"):
        place_by_list(plain(2), np.zeros((1, NUM_COEFFICIENTS - 1)), 1)


@pytest.mark.parametrize("device", [-2, 1, 2])
def test_a_node_is_kept_where_it_may_be(device):
    inputs = plain(2, legal=np.array([[True, True], [True, False]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"kept: node 1 may not be on {device}"):
        place_by_list(inputs, of_one("load", 1.0)[np.newaxis], 1, np.array([[0, device]], np.int32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="kept"):
        place_by_list(inputs, of_one("load", 1.0)[np.newaxis], 1, np.zeros((2, 2), np.int32))
