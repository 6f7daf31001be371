"""Programs that mix examples with shapes, attributes and axes as long as the batch: forward and gradient in parts."""

import pytest

from tests.tf_placer.transform.split.mixed_axes import PROGRAMS, item_of
from tests.tf_placer.transform.split.steps import complaints
from tf_placer.base.arguments import InputError
from tf_placer.transform.split import split_program

SOME = ("einsum_bb_b", "einsum_bib_bi", "diag_bands", "diag_part_bands", "set_diag", "sparse", "contrast")


@pytest.mark.parametrize("name", SOME)
def test_some_compute_the_same_with_one_example_a_part(name: str) -> None:
    item = item_of(name, 4, 4)
    assert complaints(item, 4) == []


@pytest.mark.slow
@pytest.mark.parametrize(("examples", "features"), [(5, 3), (4, 4), (6, 2)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_compute_the_same(name: str, examples: int, features: int) -> None:
    """In two and three parts and of one example each; a program whose batch is another, or none, is refused."""
    item = item_of(name, examples, features)
    for parts in sorted({2, 3, examples}):
        try:
            found = split_program(item, parts)
        except InputError as error:
            assert f"parts is {parts}, but the batch has" in str(error) or "no batch to split" in str(error)
            continue
        assert complaints(item, parts, found) == [], f"{parts} parts of {found.batch}"
