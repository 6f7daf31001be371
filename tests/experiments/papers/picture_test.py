"""The picture of a table is a PNG, and the same bytes each time."""

from experiments.papers.picture import draw
from tests.experiments.papers.by_hand import DESCRIPTION, FILLED


def test_the_same_rows_give_the_same_picture():
    first = draw(DESCRIPTION, [FILLED])
    assert first.startswith(b"\x89PNG")
    assert draw(DESCRIPTION, [FILLED]) == first
    assert draw(DESCRIPTION, [FILLED, FILLED]) != first
