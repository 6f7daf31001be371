"""docs/python.md names everything that is public, and its blocks run."""

import ast
import dataclasses
import json
import pathlib
import sys

import pytest

import tf_placer
from tests.docs.pages import blocks, pages, printed_by, read, table_rows
from tf_placer.automatic.config import AutoPlaceConfig

PAGE = pathlib.Path("docs") / "python.md"


@pytest.mark.slow
def test_the_notebook_runs(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    cells = json.loads(read(root / "docs" / "tour.ipynb"))["cells"]
    script = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    printed = printed_by([sys.executable, "-c", script], root, tmp_path, 240, CUDA_VISIBLE_DEVICES="")
    assert "train_step is placed" in printed and (tmp_path / "report.html").stat().st_size > 0


@pytest.mark.slow
def test_the_blocks_run(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # In a process of its own: logical devices are made before TensorFlow's first op.
    script = "\n".join(block.text for block in blocks(root / PAGE, "python") if not block.note)
    (tmp_path / "page.py").write_text(script)
    printed = printed_by([sys.executable, "page.py"], root, tmp_path, 240, CUDA_VISIBLE_DEVICES="")
    assert "train_step on logical2" in printed
    assert "ms a step; nothing is below" in printed


def test_blocks_of_all_pages_use_names_that_there_are(root: pathlib.Path) -> None:
    for block in (block for page in pages(root) for block in blocks(page, "python")):
        used = [
            node.attr
            for node in ast.walk(ast.parse(block.text))
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tf_placer"
        ]
        assert [name for name in used if name not in tf_placer.__all__] == []


def test_every_public_name_is_on_the_page(root: pathlib.Path) -> None:
    text = read(root / PAGE)
    assert [name for name in tf_placer.__all__ if name not in text] == []


def test_the_page_has_the_settings_of_auto_place(root: pathlib.Path) -> None:
    rows = table_rows(root / PAGE)
    first = next(i for i, row in enumerate(rows) if row[0] == "setting") + 1
    fields = {field.name: field.default for field in dataclasses.fields(AutoPlaceConfig)}
    listed = {row[0].strip("`"): row[1].strip("`") for row in rows[first : first + len(fields)]}
    assert listed.keys() == fields.keys()
    for name, default in fields.items():
        if default is not dataclasses.MISSING:
            assert listed[name] == repr(default).replace("'", '"'), name
