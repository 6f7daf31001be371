"""A SavedModel's export, and all results of a run, are there whole or not at all, whenever the writer is killed."""

import pytest

from tests.logical_devices import outcomes_of


@pytest.mark.medium
def test_what_a_kill_leaves_is_whole_or_not_there(tmp_path):
    states = outcomes_of("tests.tf_placer.command_line.killed_export_process", str(tmp_path))
    print(states)
    assert states["export"].keys() == {"nothing", "unfinished", "whole"}
    assert states["results"].keys() == {"old", "part", "new"}
    # Of the steps of the swap: one after each file or folder that goes, and after each that comes but the last.
    assert states["export"]["unfinished"] > 10 and states["results"]["part"] >= 7
