"""train: from workloads to a file of weights that a search begins with."""

import pathlib
import re

import numpy as np
import pytest

from tests.tf_placer.command_line.commands import command

WORKLOADS = ("--workloads=dense_small", "--clusters=k40x2", "--held_out=branches_small")
QUICK = (
    "--method=go", "--set=num_groups=8", "--set=width=4", "--searches=1", "--evaluations=20", "--epochs=2",
)  # fmt: skip


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.medium
def test_weights_are_taught_written_and_begun_with(tmp_path, cache, capsys):
    out = tmp_path / "go.npz"
    status, text = command("train", *WORKLOADS, *QUICK, f"--out={out}")
    assert status == 0
    assert re.search(r"epoch 2 of 2: loss \d\.\d+, \d\.\d+ held out", text)
    assert len(list((cache / "tf_placer" / "lessons").iterdir())) == 2
    weights = out.read_bytes()

    status, text = command("train", *WORKLOADS, *QUICK, f"--out={out}")  # nothing is left to do
    assert status == 0 and "epoch" not in text and out.read_bytes() == weights

    place = (
        "place", "--workload=branches_small", "--cluster=p100x2", "--method=go", "--budget_evaluations=40",
    )  # fmt: skip
    small = ("--set=num_groups=8", "--set=width=4")
    assert command(*place, *small, f"--weights={out}", f"--out={tmp_path / 'a'}")[0] == 0
    assert command(*place, f"--weights={out}", f"--out={tmp_path / 'b'}")[0] == 2
    assert "was taught with width=4, this policy has" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_a_method_that_is_not_taught_is_told(tmp_path, capsys):
    assert command("train", "--method=hdp", *WORKLOADS, f"--out={tmp_path / 'hdp.npz'}")[0] == 2
    assert "'hdp' is not taught beforehand" in capsys.readouterr().err
    np.savez(tmp_path / "w.npz", weights=np.zeros(1))
    place = ("place", "--workload=branches_small", "--cluster=p100x2", "--method=single")
    assert command(*place, f"--out={tmp_path / 'o'}", f"--weights={tmp_path / 'w.npz'}")[0] == 2
    assert "'single' is not; leave it out" in capsys.readouterr().err


def test_a_file_of_something_else_is_not_replaced(tmp_path, capsys):
    out = tmp_path / "mine.txt"
    out.write_text("mine")
    assert command("train", *WORKLOADS, *QUICK, f"--out={out}")[0] == 2
    assert "holds no weights" in capsys.readouterr().err and out.read_text() == "mine"
