"""Each op type's rule against the op itself: the split op gives what the op gives, on random numbers."""

from collections.abc import Iterator
from unittest import mock

import pytest

from tests.oracles.split_equality import differences, run_lifted
from tests.tf_placer.transform.split.op_cases import arguments_of, cases_of, item_of, op_types
from tests.tf_placer.transform.split.steps import wrong_sizes
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.transform.split import split_batch, split_program
from tf_placer.transform.split.propagate import Tensor, propagate
from tf_placer.transform.split.split_batch import SplitProgram
from tf_placer.transform.split.states import Batch, Part

SEEDS = range(3)


@pytest.mark.parametrize("op_type", op_types())
def test_a_split_op_gives_what_the_op_gives(op_type: str) -> None:
    for seed in SEEDS:
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
def test_a_split_op_has_the_gradients_of_the_op(op_type: str) -> None:
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
def test_examples_may_be_on_any_axis(op_type: str) -> None:
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
