"""A fused batch normalization and its gradient are both split or both whole."""

from unittest import mock

import pytest
import tensorflow as tf

from tests.tf_placer.transform.split.steps import complaints, item_of_step
from tf_placer.graph.item import Item
from tf_placer.transform.split import rules, split_program
from tf_placer.transform.split.split_batch import SplitProgram
from tf_placer.transform.split.states import NotSplit

FORWARD, BACKWARD = "FusedBatchNormV3", "FusedBatchNormGradV3"


def split_without(item: Item, rule: str, batch_statistics: str = "whole") -> SplitProgram:
    """The item in two parts, where one rule refuses every op."""

    def refuse(op, argument="", has_own_statistics=False):
        del op, argument, has_own_statistics
        raise NotSplit("the test says so")

    kept = rules.split_by_rule

    def by_rule(op, has_own_statistics=False):
        return (refuse if rules.rule_name(op.node.op) == rule else kept)(op, has_own_statistics)

    with mock.patch("tf_placer.transform.split.propagate.split_by_rule", by_rule):
        return split_program(item, 2, batch_statistics)


def types_of(found: SplitProgram, item: Item, names) -> set[str]:
    types = dict(zip(item.index.names, item.index.op_types, strict=True))
    return {types[name] for name in names} & {FORWARD, BACKWARD}


@pytest.fixture(scope="module")
def item() -> Item:
    return item_of_step(3, 6, ["dense", "fused_batch_norm", "dense", "fused_batch_norm"], "mean", "descend")


def test_both_are_split_where_both_can_be(item: Item) -> None:
    found = split_program(item, 2)
    assert types_of(found, item, found.split_ops) == {FORWARD, BACKWARD}


@pytest.mark.parametrize("statistics", ["whole", "part"])
@pytest.mark.parametrize(
    ("rule", "other", "why"),
    [
        ("normalization", BACKWARD, "the normalization whose statistics it reads is whole"),
        ("normalization_gradient", FORWARD, "what it keeps for its gradient is read by an op that is whole"),
    ],
)
def test_where_one_is_whole_so_is_the_other(
    item: Item, rule: str, other: str, why: str, statistics: str
) -> None:
    found = split_without(item, rule, statistics)
    assert types_of(found, item, found.split_ops) == set()
    assert [one.why for one in found.stayed_whole if one.op_type == other] == [why] * 2
    if statistics == "whole":
        assert complaints(item, 2, found) == []


def test_what_is_kept_and_handed_on_is_found() -> None:
    """The gradient reads it through an identity, and a second program gives it to its caller."""
    scale = tf.ones([3])
    zeros = tf.zeros([3])

    def forward(x):
        return tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=zeros, mean=zeros, variance=zeros)

    @tf.function
    def with_gradient(x):
        y, _, _, mean, variance, space = tf.raw_ops.IdentityN(input=list(forward(x)))
        return tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=y * y,
            x=x,
            scale=scale,
            reserve_space_1=mean,
            reserve_space_2=variance,
            reserve_space_3=space,
        )[:3]

    @tf.function
    def handed_out(x):
        made = forward(x)
        return tf.nn.relu(made[0]), made[4]

    x = tf.random.stateless_normal([4, 2, 2, 3], [1, 2])
    program = Item.from_function(with_gradient, x)
    found = split_program(program, 2)
    assert types_of(found, program, found.split_ops) == {FORWARD, BACKWARD}
    assert complaints(program, 2, found) == []
    program = Item.from_function(handed_out, x)
    found = split_program(program, 2)
    assert FORWARD not in types_of(found, program, found.split_ops)
    assert complaints(program, 2, found) == []
