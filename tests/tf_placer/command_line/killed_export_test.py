"""A SavedModel's export, and all results of a run, are there whole or not at all, whenever the writer is killed."""

import pathlib
from typing import Any

import pytest

from tests.logical_devices import outcomes_of

SEED = 7


def found_by(folder: pathlib.Path, kills: int) -> dict[str, Any]:
    return outcomes_of(
        "tests.tf_placer.command_line.killed_export_process", str(folder), str(kills), str(SEED)
    )


def check(found: dict[str, Any], kills: int) -> None:
    print(f"seed {SEED}: {found}")
    export, results = found["export"], found["results"]
    assert export["wrong"] == [] and results["wrong"] == []
    assert sum(export["phases"].values()) == kills
    # Of the steps of the swap: one after each file or folder that goes, and after each that comes but the last.
    assert results["phases"]["neither, unfinished beside it"] >= 7


@pytest.mark.medium
def test_ten_kills(tmp_path):
    check(found_by(tmp_path, 10), 10)


@pytest.mark.slow
def test_a_hundred_kills_meet_every_phase(tmp_path):
    found = found_by(tmp_path, 100)
    check(found, 100)
    assert 1 <= found["export"]["phases"].get("reading", 0) < 100
    assert found["results"]["phases"].keys() >= {"old", "old, unfinished beside it", "new"}
