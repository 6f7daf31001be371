"""The mark ``own_process``: tests of a file in one child process, each with its own result."""

import os
import re
import sys

import pytest

from tests.own_process import python

FILE = """
import os
import pytest

pytestmark = pytest.mark.own_process(timeout_s=20)

@pytest.fixture(scope="module")
def pids():
    return {os.getppid()}

@pytest.mark.parametrize("name", ["a b", "c::d"])
def test_passes(pids, name):
    pids.add(os.getpid())
    assert len(pids) == 2

def test_differs():
    assert {"a": 1} == {"a": 2}

@pytest.mark.xfail(strict=True)
def test_is_known():
    assert False

@pytest.mark.own_process("crashing")
def test_crashes():
    os._exit(3)

@pytest.mark.own_process(timeout_s=0.01)
def test_does_not_end():
    while True:
        pass

def test_passes_too():
    pass
"""


@pytest.mark.own_process(exact=True, env={"TF_PLACER_ASKED": "here"})
def test_it_has_its_environment_and_logical_devices():
    assert os.environ["TF_PLACER_ASKED"] == "here"
    tensorflow = sys.modules["tensorflow"]  # was there before
    assert len(tensorflow.config.list_logical_devices("CPU")) == 4
    assert not tensorflow.config.get_soft_device_placement()


@pytest.mark.own_process("another")
def test_a_name_is_another_process():
    assert "TF_PLACER_ASKED" not in os.environ


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        ((), {"passed": 3, "failed": 3, "xfailed": 1}),
        (("-k", "passes_too or crashes"), {"passed": 1, "failed": 1, "deselected": 5}),
        (("--numprocesses=1", "--dist=loadfile", "-x"), {"passed": 2, "failed": 1}),
        (("own_test.py::test_passes[c::d]",), {"passed": 1}),
    ],
    ids=["whole", "chosen", "until_one_fails", "single"],
)
def test_each_test_has_its_own_result(tmp_path, options, outcomes):
    (tmp_path / "own_test.py").write_text(FILE)
    settings = "[pytest]\nmarkers =\n  own_process: mark\npython_files = *_test.py\n"
    (tmp_path / "pytest.ini").write_text(settings)
    done = python("-m", "pytest", "-p", "tests.own_process", *options, cwd=tmp_path)
    counted = re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])
    assert {outcome: int(count) for count, outcome in counted if outcome in outcomes} == outcomes
    if not options:
        assert "E         {'a': 1} != {'a': 2}" in done.stdout
        assert "the process ended with status 3:" in done.stdout
        assert "the process was killed after 0.01 s:" in done.stdout
