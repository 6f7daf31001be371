"""Each op type's rule against the op itself: the split op gives what the op gives, on random numbers."""

from __future__ import annotations

import pytest

from tests.tf_placer.transform.split.op_cases import arguments_of, item_of, op_types
from tf_placer.transform.split import split_program
from tf_placer.transform.split.equality import differences, run_lifted

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
