"""docs/keras.md: its cells are the example's, and run as they stand there."""

import pathlib
import re
import sys

import pytest

from tests.docs.pages import blocks, printed_by

PAGE = pathlib.Path("docs") / "keras.md"
EXAMPLE = pathlib.Path("experiments") / "examples" / "keras_on_two_devices.py"
DEVICES = re.compile(r"^DEVICES = .*$", re.MULTILINE)

# Two devices of one process, which need no profiling; the search is short.
LOGICAL = """
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""


@pytest.fixture(scope="module")
def page(root: pathlib.Path) -> str:
    return "\n".join(block.text for block in blocks(root / PAGE, "python"))


def test_the_cells_are_the_examples(root: pathlib.Path, page: str) -> None:
    example = (root / EXAMPLE).read_text()
    cells = re.split(r"^# %% .*$", example, flags=re.MULTILINE)[1:]
    assert [DEVICES.sub("", cell).split() for cell in cells] == [
        DEVICES.sub("", block.text).split() for block in blocks(root / PAGE, "python")
    ]
    assert DEVICES.findall(example) == ['DEVICES = "local:2"']


def trained(script: str, root: pathlib.Path, folder: pathlib.Path, timeout_s: float) -> str:
    """What a script prints that leaves a report."""
    command = [sys.executable, "-c", script]
    printed = printed_by(command, root, folder, timeout_s, CUDA_VISIBLE_DEVICES="")
    assert (folder / "report.html").stat().st_size > 0
    return printed


@pytest.mark.slow
def test_the_cells_run(root: pathlib.Path, page: str, tmp_path: pathlib.Path) -> None:
    script = LOGICAL + DEVICES.sub("DEVICES = tf_placer.Cluster.logical(2)", page)
    script = script.replace('"budget_s": 20', '"budget_s": 2')
    assert "train_step on logical2" in trained(script, root, tmp_path, 240)


@pytest.mark.slow
def test_the_example_runs_on_two_workers(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert "train_step on local" in trained((root / EXAMPLE).read_text(), root, tmp_path, 400)
