"""A table: the same files each time, and a table that was stopped goes on."""

import pytest

from experiments.papers import table
from experiments.papers.description import Description, Row


@pytest.fixture
def description():
    rows = (Row("dense_small", "k40x2", published={"GPU": 9.0, "RL": 0.1}), Row("branches_small", "k40x2"))
    return Description(
        "try", "Try", "nobody", ("single", "random"), 20, 60.0, (0, 1), rows,
        published_as={"one_accelerator": "GPU", "random": "RL"},
    )  # fmt: skip


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_two_runs_write_the_same_bytes(description, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert table.compute(description, tmp_path / name, "the command") == 0
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    assert one == two and one.keys() == {"try.md", "try.csv", "try.png"}
    again = table.compute(description, tmp_path / "one", "the command")
    assert again == 0 and files(tmp_path / "one") == two


def test_ctrl_c_keeps_the_rows_that_are_complete(description, tmp_path, monkeypatch, capsys):
    fill = table.fill

    def stopped(*arguments):
        yield next(fill(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(table, "fill", stopped)
    assert table.compute(description, tmp_path, "the command") == 1
    assert "1 of 2 rows are complete; run it again to go on" in capsys.readouterr().out
    assert b"Not complete: 1 of 2" in files(tmp_path)["try.md"]
