"""Figures of a small tree of modules, counted by hand."""

import pathlib

import pytest

from tools.module_map import report


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    files = {
        "tf_placer/__init__.py": '"""Public face."""\nfrom tf_placer.a import b\n',
        "tf_placer/a/__init__.py": "",
        "tf_placer/a/b.py": '"""What b is."""\nimport os\nfrom tf_placer.a import c\nfrom .c import d\n',
        "tf_placer/a/c.py": 'class C:\n    """Whatever."""\ndef d():\n    """Where d is."""\n',
        "tests/tf_placer/a/b_test.py": "import tf_placer\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_modules_edges_and_docstrings_are_counted(tree: pathlib.Path) -> None:
    told = report(tree).splitlines()
    # Lines 2, 0, 4 and 4; edges: the face to b, and b to c once.
    assert told[0] == "4 modules, 10 lines, 3 in the median module"
    assert told[1] == "2 import edges, 200.0 per 1,000 lines"
    assert told[3] == "    1 tf_placer" and told[4] == "    1 tf_placer.a.b"
    # "What b is." and "Where d is." of four.
    assert "50.0% of 4 docstrings begin with What/Which/How/Where" in told
    assert told[-2:] == ["       8 tf_placer.a", "       2 tf_placer"]
