"""A function that is placed after some calls draws the random numbers that it would draw undecorated."""

import pytest

from tests.logical_devices import outcomes_of
from tests.tf_placer.automatic.random_numbers_process import PROGRAMS

_PROCESS = "tests.tf_placer.automatic.random_numbers_process"


@pytest.fixture(scope="module")
def undecorated() -> dict[str, list[str]]:
    return outcomes_of(_PROCESS, "undecorated", "")


@pytest.fixture(scope="module", params=["used", "unused"])
def placed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return outcomes_of(_PROCESS, request.param, str(tmp_path_factory.mktemp("plans")))


@pytest.mark.slow
@pytest.mark.parametrize("program", [program.__name__ for program in PROGRAMS])
def test_the_numbers_are_the_undecorated_ones(
    undecorated: dict[str, list[str]], placed: dict[str, list[str]], program: str
) -> None:
    assert placed[program] == undecorated[program]
