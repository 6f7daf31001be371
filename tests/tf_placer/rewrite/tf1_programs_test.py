"""Placed programs of TensorFlow 1 compute what they did."""

from __future__ import annotations

import pytest

from tests.logical_devices import outcomes_of
from tests.tf1_programs import PROGRAMS

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return outcomes_of("tests.tf_placer.rewrite.tf1_programs_process")


@pytest.mark.parametrize("name", [*PROGRAMS, "saved_model_keeps_its_values"])
def test_a_placed_program_computes_what_it_did(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == "ok"
