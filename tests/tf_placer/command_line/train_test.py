"""train: from workloads to a file of weights that a search begins with."""

import io
import pathlib
import re

import numpy as np
import pytest
import rich.console

from tf_placer.__main__ import run

WORKLOADS = ("--workloads=dense_small", "--clusters=k40x2", "--held_out=branches_small")
QUICK = (
    "--method=go", "--set=num_groups=8", "--set=width=4", "--searches=1", "--evaluations=20", "--epochs=2",
)  # fmt: skip


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def said(*argv: str) -> tuple[int, str]:
    text = io.StringIO()
    return run(argv, rich.console.Console(file=text, width=200)), text.getvalue()


@pytest.mark.medium
def test_weights_are_taught_written_and_begun_with(tmp_path, cache, capsys):
    out = tmp_path / "go.npz"
    status, text = said("train", *WORKLOADS, *QUICK, f"--out={out}")
    assert status == 0
    assert re.search(r"epoch 2 of 2: loss \d\.\d+, \d\.\d+ held out", text)
    assert len(list((cache / "tf_placer" / "lessons").iterdir())) == 2
    weights = out.read_bytes()

    status, text = said("train", *WORKLOADS, *QUICK, f"--out={out}")  # nothing is left to do
    assert status == 0 and "epoch" not in text and out.read_bytes() == weights

    place = (
        "place", "--workload=branches_small", "--cluster=p100x2", "--method=go", "--budget_evaluations=40",
    )  # fmt: skip
    small = ("--set=num_groups=8", "--set=width=4")
    assert said(*place, *small, f"--weights={out}", f"--out={tmp_path / 'a'}")[0] == 0
    assert said(*place, f"--weights={out}", f"--out={tmp_path / 'b'}")[0] == 2
    assert "was taught with width=4, this policy has" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_a_method_that_is_not_taught_is_told(tmp_path, capsys):
    assert said("train", "--method=hdp", *WORKLOADS, f"--out={tmp_path / 'hdp.npz'}")[0] == 2
    assert "'hdp' is not taught beforehand" in capsys.readouterr().err
    place = (
        "place",
        "--workload=branches_small",
        "--cluster=p100x2",
        "--method=single",
        f"--out={tmp_path / 'o'}",
    )
    np.savez(tmp_path / "w.npz", weights=np.zeros(1))
    assert said(*place, f"--weights={tmp_path / 'w.npz'}")[0] == 2
    assert "'single' is not; leave it out" in capsys.readouterr().err


def test_a_file_of_something_else_is_not_replaced(tmp_path, capsys):
    out = tmp_path / "mine.txt"
    out.write_text("mine")
    assert said("train", *WORKLOADS, *QUICK, f"--out={out}")[0] == 2
    assert "holds no weights" in capsys.readouterr().err and out.read_text() == "mine"
