"""BUILD files and modules are in step."""

from __future__ import annotations

import ast
import collections
import pathlib
import re

import pytest

from tools.module_map import SOURCE_ROOTS, source_modules
from tools.sync_build import HEADER, render_all


def rules_of(root: pathlib.Path, file: pathlib.Path) -> list[tuple[str, dict[str, ast.expr]]]:
    """(rule, attributes) of every rule in a BUILD file; BUILD syntax is a subset of Python's."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file.relative_to(root)))
    return [
        (node.func.id, {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg})
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]


def build_files(root: pathlib.Path) -> list[pathlib.Path]:
    found = [file for top in (*SOURCE_ROOTS, "tests") for file in (root / top).rglob("BUILD")]
    assert found, "no BUILD file found: the test looks in the wrong place"
    return found


def test_generated_build_files_are_up_to_date(root: pathlib.Path) -> None:
    stale = [
        path
        for path, text in render_all(root).items()
        if not (root / path).exists() or (root / path).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "\n".join(["run `make build-files`", *stale])


def test_no_generated_build_file_is_left_behind(root: pathlib.Path) -> None:
    wanted = render_all(root)
    left = [
        str(file.relative_to(root))
        for file in build_files(root)
        if file.read_text(encoding="utf-8").startswith(HEADER) and str(file.relative_to(root)) not in wanted
    ]
    assert left == [], "the folder has no module any more: delete its BUILD file"


def test_every_module_is_in_exactly_one_library(root: pathlib.Path) -> None:
    listed: collections.Counter[str] = collections.Counter()
    for file in build_files(root):
        for rule, attributes in rules_of(root, file):
            if rule == "py_library":
                listed.update(
                    str((file.parent / name).relative_to(root))
                    for name in ast.literal_eval(attributes["srcs"])
                )
    modules = [str(module.path) for module in source_modules(root).values()]
    modules += [
        str(file.relative_to(root))
        for file in (root / "tests").rglob("*.py")
        if not file.name.endswith("_test.py")
    ]
    assert sorted(listed.elements()) == sorted(modules)


def test_every_test_file_has_exactly_one_test_rule(root: pathlib.Path) -> None:
    listed: collections.Counter[str] = collections.Counter()
    for file in build_files(root):
        for rule, attributes in rules_of(root, file):
            if rule == "pytest_test":
                listed[str((file.parent / ast.literal_eval(attributes["src"])).relative_to(root))] += 1
    test_files = [str(file.relative_to(root)) for file in (root / "tests").rglob("*_test.py")]
    assert sorted(listed.elements()) == sorted(test_files)


def test_every_test_file_has_a_test(root: pathlib.Path) -> None:
    # Bazel's runner accepts a file whose tests are all slow, so an empty file must be caught here.
    empty = [
        str(file.relative_to(root))
        for file in (root / "tests").rglob("*_test.py")
        if not any(
            isinstance(node, ast.FunctionDef) and node.name.startswith("test")
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        )
    ]
    assert empty == []


def test_bazel_compiles_the_op_as_the_package_does(root: pathlib.Path) -> None:
    [flags] = [
        ast.literal_eval(node.value)
        for node in source_modules(root)["tf_placer.ops.build"].tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_FLAGS"
    ]
    build_text = (root / "tf_placer/ops/cc/BUILD").read_text(encoding="utf-8")
    shaping = [flag for flag in flags if flag.startswith(("-O", "-D", "-m"))]
    assert shaping, "tf_placer/ops/build.py no longer names its optimization level in _FLAGS"
    assert [flag for flag in shaping if f'"{flag}"' not in build_text] == []


@pytest.fixture
def small_repository(tmp_path: pathlib.Path) -> pathlib.Path:
    files = {
        "tf_placer/__init__.py": "from tf_placer.costs import Device\n",
        "tf_placer/errors.py": "",
        "tf_placer/costs/__init__.py": "from tf_placer.costs.device import Device\n",
        "tf_placer/costs/device.py": "from tf_placer import errors\nARGS = ['-m', 'colocation.tool']\n",
        "tf_placer/costs/presets/one.toml": "",
        "colocation/tool.py": "",
        "tests/tf_placer/costs/device_test.py": "import tf_placer.costs.device\ndef test_it(): pass\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_rendering_follows_imports_children_and_data(small_repository: pathlib.Path) -> None:
    files = render_all(small_repository)
    assert sorted(files) == [
        "colocation/BUILD",
        "tests/tf_placer/costs/BUILD",
        "tf_placer/BUILD",
        "tf_placer/costs/BUILD",
    ]
    costs = files["tf_placer/costs/BUILD"]
    assert 'srcs = [\n        "__init__.py",\n        "device.py",\n    ]' in costs
    # The preset in a folder without modules, the imported leaf and the module that is started as a child.
    assert 'data = ["presets/one.toml"]' in costs
    assert 'deps = [\n        "//colocation",\n        "//tf_placer:errors",\n    ]' in costs
    # The face and the leaf are targets of their own.
    assert 'name = "errors"' in files["tf_placer/BUILD"]
    assert 'deps = ["//tf_placer/costs"]' in files["tf_placer/BUILD"]
    assert 'deps = ["//tf_placer/costs"]' in files["tests/tf_placer/costs/BUILD"]


def test_no_test_imports_another(root: pathlib.Path) -> None:
    """A test file is no library, to Bazel either: what two need is a file of its own."""
    importers = [
        f"{path.relative_to(root)}: {line}"
        for path in sorted((root / "tests").rglob("*_test.py"))
        for line in path.read_text(encoding="utf8").splitlines()
        if re.match(r"(from|import) tests\.\S+_test\b", line)
    ]
    assert importers == [], "\n".join(importers)
