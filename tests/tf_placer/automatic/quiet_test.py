"""On live workers a process says nothing of errors that are none, and draws what it draws undecorated."""

import pathlib
import re

import pytest

from tests.logical_devices import outcomes_of
from tests.own_process import python
from tests.tf_placer.automatic.random_numbers_process import PROGRAMS

_PROCESS = pathlib.Path(__file__).with_name("quiet_process.py")
_LOOK = "import tensorflow as tf, keras; tf.config.list_logical_devices()"
_STAMP = re.compile(r"^([IWEF])\d{4} \S+ +\d+ ")


def said(*command: str) -> list[str]:
    """Lines on stderr of a Python process that must succeed, without times."""
    done = python(*command, TF_CPP_MIN_LOG_LEVEL="0")
    assert done.returncode == 0, done.stderr
    return [_STAMP.sub(r"\1 ", line) for line in done.stderr.splitlines()]


@pytest.mark.slow
def test_keras_on_live_workers(tmp_path):
    by_itself = set(said("-c", _LOOK))  # on a machine without a GPU TensorFlow says so
    lines = [line for line in said(str(_PROCESS), str(tmp_path)) if line not in by_itself]
    theirs = re.compile(r"[WEF] |WARNING|Traceback|Exception ignored|.*(GRPC|grpc_status|remote target)")
    assert [line for line in lines if theirs.match(line)] == []


_DRAWING_PROCESS = "tests.tf_placer.automatic.random_numbers_process"


@pytest.fixture(scope="module")
def undecorated() -> dict[str, list[str]]:
    return outcomes_of(_DRAWING_PROCESS, "undecorated", "")


@pytest.fixture(scope="module", params=["used", "unused"])
def placed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return outcomes_of(_DRAWING_PROCESS, request.param, str(tmp_path_factory.mktemp("plans")))


@pytest.mark.slow
@pytest.mark.parametrize("program", [program.__name__ for program in PROGRAMS])
def test_the_numbers_are_the_undecorated_ones(undecorated, placed, program):
    assert placed[program] == undecorated[program]
