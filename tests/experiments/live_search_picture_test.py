"""The README's picture shows what its table says."""

import pytest

from experiments.live_search_picture import draw, measured_fractions

PAGE = """
| training step | recommended | measured | simulated, after the refit |
|---|---|---|---|
| two towers | local search, three times | 0.577 0.567 0.602 | 0.570 0.543 0.542 |
| transformer | single device, three times | 0.964 1.006 1.000 | 1 |
"""


def test_every_row_of_the_table_is_read():
    rows = measured_fractions(PAGE)
    assert {step: method for step, (method, _) in rows.items()} == {
        "two towers": "local search",
        "transformer": "single device",
    }
    assert rows["two towers"][1] == pytest.approx([0.577, 0.567, 0.602])


def test_a_picture_is_drawn(tmp_path):
    draw(measured_fractions(PAGE), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
