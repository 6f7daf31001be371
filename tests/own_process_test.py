"""The mark ``own_process``: tests of a file in one child process, each with its own result."""

from __future__ import annotations

import os
import sys

import pytest


@pytest.mark.own_process(exact=True, env={"TF_PLACER_ASKED": "here"})
def test_it_has_its_environment_and_logical_devices() -> None:
    assert os.environ["TF_PLACER_ASKED"] == "here"
    tensorflow = sys.modules["tensorflow"]  # was there before
    assert len(tensorflow.config.list_logical_devices("CPU")) == 4
    assert not tensorflow.config.get_soft_device_placement()


@pytest.mark.own_process("another")
def test_a_name_is_another_process() -> None:
    assert "TF_PLACER_ASKED" not in os.environ
