"""docs/python.md names everything that is public, and its blocks run, as do the cells of docs/keras.md."""

import ast
import dataclasses
import json
import pathlib
import re
import sys

import pytest

import tf_placer
from tests.docs.pages import blocks, pages, printed_by, read, table_rows
from tf_placer.automatic.config import AutoPlaceConfig

PAGE = pathlib.Path("docs") / "python.md"


@pytest.mark.slow
def test_the_notebook_runs(root, tmp_path):
    cells = json.loads(read(root / "docs" / "tour.ipynb"))["cells"]
    script = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    printed = printed_by([sys.executable, "-c", script], root, tmp_path, 240, CUDA_VISIBLE_DEVICES="")
    assert "train_step is placed" in printed and (tmp_path / "report.html").stat().st_size > 0


@pytest.mark.slow
def test_the_blocks_run(root, tmp_path):
    # In a process of its own: logical devices are made before TensorFlow's first op.
    script = "\n".join(block.text for block in blocks(root / PAGE, "python") if not block.note)
    (tmp_path / "page.py").write_text(script)
    printed = printed_by([sys.executable, "page.py"], root, tmp_path, 240, CUDA_VISIBLE_DEVICES="")
    assert "train_step on logical2" in printed
    assert "ms a step; nothing is below" in printed


def test_blocks_of_all_pages_use_names_that_there_are(root):
    for block in (block for page in pages(root) for block in blocks(page, "python")):
        used = [
            node.attr
            for node in ast.walk(ast.parse(block.text))
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tf_placer"
        ]
        assert [name for name in used if name not in tf_placer.__all__] == []


def test_every_public_name_is_on_the_page(root):
    text = read(root / PAGE)
    assert [name for name in tf_placer.__all__ if name not in text] == []


def test_the_page_has_the_settings_of_auto_place(root):
    rows = table_rows(root / PAGE)
    first = next(i for i, row in enumerate(rows) if row[0] == "setting") + 1
    fields = {field.name: field.default for field in dataclasses.fields(AutoPlaceConfig)}
    listed = {row[0].strip("`"): row[1].strip("`") for row in rows[first : first + len(fields)]}
    assert listed.keys() == fields.keys()
    for name, default in fields.items():
        if default is not dataclasses.MISSING:
            assert listed[name] == repr(default).replace("'", '"'), name


KERAS_PAGE = pathlib.Path("docs") / "keras.md"
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
    return "\n".join(block.text for block in blocks(root / KERAS_PAGE, "python"))


def test_the_cells_are_the_examples(root, page):
    example = (root / EXAMPLE).read_text()
    cells = re.split(r"^# %% .*$", example, flags=re.MULTILINE)[1:]
    assert [DEVICES.sub("", cell).split() for cell in cells] == [
        DEVICES.sub("", block.text).split() for block in blocks(root / KERAS_PAGE, "python")
    ]
    assert DEVICES.findall(example) == ['DEVICES = "local:2"']


def trained(script: str, root: pathlib.Path, folder: pathlib.Path, timeout_s: float) -> str:
    """What a script prints that leaves a report."""
    printed = printed_by([sys.executable, "-c", script], root, folder, timeout_s, CUDA_VISIBLE_DEVICES="")
    assert (folder / "report.html").stat().st_size > 0
    return printed


@pytest.mark.slow
def test_the_cells_run(root, page, tmp_path):
    script = LOGICAL + DEVICES.sub("DEVICES = tf_placer.Cluster.logical(2)", page)
    script = script.replace('"budget_s": 20', '"budget_s": 2')
    assert "train_step on logical2" in trained(script, root, tmp_path, 240)


@pytest.mark.slow
def test_the_example_runs_on_two_workers(root, tmp_path):
    assert "train_step on local" in trained((root / EXAMPLE).read_text(), root, tmp_path, 400)
