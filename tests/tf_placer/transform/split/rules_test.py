"""Each op type's rule against the op itself on random numbers; ties of ops that are split together."""

from collections.abc import Iterator
from unittest import mock

import pytest
import tensorflow as tf

from tests.oracles.split_equality import differences, run_lifted
from tests.tf_placer.transform.split.op_cases import arguments_of, cases_of, item_of, op_types
from tests.tf_placer.transform.split.steps import complaints, item_of_step, wrong_sizes
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.transform.split import rules, split_batch, split_program
from tf_placer.transform.split.propagate import Tensor, propagate
from tf_placer.transform.split.split_batch import SplitProgram
from tf_placer.transform.split.states import Batch, NotSplit, Part


@pytest.mark.parametrize("op_type", op_types())
def test_a_split_op_gives_what_the_op_gives(op_type):
    for seed in range(3):
        batch, arguments = arguments_of(op_type, seed)
        item = item_of(op_type, batch, arguments)
        parts = 2 + seed % 2
        found = split_program(item, parts)
        types = dict(zip(item.index.names, item.index.op_types, strict=True))
        if all(feed.shape[0] == batch for feed in item.feeds):
            assert found.batch == batch
        assert op_type in {types[name] for name in found.split_ops}, [str(one) for one in found.stayed_whole]
        assert differences(run_lifted(item), run_lifted(found.item)) == [], (
            f"seed {seed}, {parts} parts of {batch}"
        )
        with pytest.raises(InputError, match=f"parts is 8, but the batch has {found.batch} examples"):
            split_program(item, 8)


@pytest.mark.medium
@pytest.mark.parametrize("op_type", op_types())
def test_a_split_op_has_the_gradients_of_the_op(op_type):
    """Parts of one example, and uneven ones of more."""
    for arguments in cases_of(op_type, 5):
        item = item_of(op_type, 5, arguments, has_gradients=True)
        whole = run_lifted(item)
        examples = {
            (item.index.id_of_name[feed.node], 0): Part(feed.shape.index(5))
            for feed in item.feeds
            if 5 in feed.shape
        }
        for parts in (2, 5):
            found = split_along(item, examples, 5, parts)
            if found is not None:
                assert complaints_of(item, found, whole) == [], f"{parts} parts of 5: {arguments}"


@pytest.mark.slow
@pytest.mark.parametrize("op_type", op_types())
def test_examples_may_be_on_any_axis(op_type):
    """Every axis of an input that is long enough, with rows before the examples and numbers behind them, too."""
    for batch in (2, 3, 4):
        for arguments in cases_of(op_type, batch):
            item = item_of(op_type, batch, arguments)
            whole = run_lifted(item)
            for examples in possible_examples(item, batch):
                for parts in sorted({2, batch}):
                    found = split_along(item, examples, batch, parts)
                    if found is not None:
                        where = f"{parts} parts of {batch} along {examples}: {arguments}"
                        assert complaints_of(item, found, whole) == [], where


def complaints_of(item: Item, found: SplitProgram, whole) -> list[str]:
    return [*differences(whole, run_lifted(found.item)), *wrong_sizes(found.item)]


def possible_examples(item: Item, batch: int) -> Iterator[dict[Tensor, Part]]:
    """Each axis of each input that can hold the examples, and one of every input at once."""
    together: dict[Tensor, Part] = {}
    for feed in item.feeds:
        tensor = item.index.id_of_name[feed.node], 0
        for axis, length in enumerate(feed.shape):
            for outer in (1, 2):
                if length and length % (outer * batch) == 0:
                    yield {tensor: Part(axis, outer)}
                    together.setdefault(tensor, Part(axis, outer))
    if len(together) > 1:
        yield together


def split_along(item: Item, examples: dict[Tensor, Part], size: int, parts: int) -> SplitProgram | None:
    """The item with its examples where they are said to be; None where no op is split then."""

    def best(program, parts, has_own_statistics):
        return propagate(program, examples, Batch.divided(size, parts), has_own_statistics), examples

    with mock.patch.object(split_batch, "best_states", best):
        try:
            return split_program(item, parts)
        except InputError as error:
            assert "leaves no op" in str(error)
            return None


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


def test_both_are_split_where_both_can_be(item):
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
def test_where_one_is_whole_so_is_the_other(item, rule, other, why, statistics):
    found = split_without(item, rule, statistics)
    assert types_of(found, item, found.split_ops) == set()
    assert [one.why for one in found.stayed_whole if one.op_type == other] == [why] * 2
    if statistics == "whole":
        assert complaints(item, 2, found) == []


def test_what_is_kept_and_handed_on_is_found():
    """The gradient reads it through an identity, and a second program gives it to its caller."""
    scale = tf.ones([3])
    zeros = tf.zeros([3])

    def forward(x):
        return tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=zeros, mean=zeros, variance=zeros)

    @tf.function
    def with_gradient(x):
        y, _, _, mean, variance, space = tf.raw_ops.IdentityN(input=list(forward(x)))
        return tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=y * y, x=x, scale=scale, reserve_space_1=mean, reserve_space_2=variance,
            reserve_space_3=space,
        )[:3]  # fmt: skip

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
