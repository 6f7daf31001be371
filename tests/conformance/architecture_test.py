"""The layout of docs/architecture.md, section 3, holds: arrows point down, and there is no cycle."""

import ast
import graphlib
import pathlib
import re

import pytest

from tools.module_map import (
    SOURCE_ROOTS,
    Module,
    figures,
    imported_modules,
    limits,
    read_module,
    source_modules,
    violations,
)

MAX_FUNCTION_LINES = 80
_FLAG_MODULES = (
    "tf_placer.__main__",
    *(f"tf_placer.command_line.{name}" for name in ("check_flags", "request", "place")),
)
SHAPELESS_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


@pytest.fixture(scope="module")
def modules(root: pathlib.Path) -> dict[str, Module]:
    """Every module that is installed; tools/ is not part of the layout."""
    return {name: module for name, module in source_modules(root).items() if not name.startswith("tools")}


@pytest.fixture(scope="module")
def bands(root: pathlib.Path) -> dict[str, int]:
    return read_bands((root / "docs" / "architecture.md").read_text(encoding="utf-8"))


def read_bands(text: str) -> dict[str, int]:
    """Dotted name -> band, from the rows ``| band | `folder/`, `module.py` | ...`` of the layout's table."""
    bands = {}
    for number, cell in re.findall(r"^\| (\d) \| ([^|]*) \|", text, flags=re.MULTILINE):
        for path in re.findall(r"`([\w/]+(?:/|\.py))`", cell):
            # After its first entry a row names folders of tf_placer/ shortly.
            full = path if path.split("/")[0] in SOURCE_ROOTS else f"tf_placer/{path}"
            bands[full.removesuffix(".py").rstrip("/").replace("/", ".")] = int(number)
    return bands


def band_of(name: str, bands: dict[str, int]) -> int:
    """The band of the longest listed prefix of a dotted name.

    Raises:
      KeyError: no prefix is listed.
    """
    parts = name.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return bands[next((prefix for prefix in prefixes if prefix in bands), name)]


def test_every_folder_has_a_band(modules, bands):
    folders = {".".join(module.path.parts[:2]) for module in modules.values() if len(module.path.parts) > 2}
    assert folders, "no folder found: the test looks in the wrong place"
    assert sorted(folders - bands.keys()) == [], "add the new folder to the table of docs/architecture.md"


def test_arrows_point_to_equal_or_lower_bands(modules, bands):
    upward = [
        f"{name} (band {band_of(name, bands)}) imports {used} (band {band_of(used, bands)})"
        for name, module in modules.items()
        for used in sorted(imported_modules(module, modules))
        if band_of(used, bands) > band_of(name, bands)
    ]
    assert upward == [], "\n".join(upward)


def test_nothing_imports_experiments(modules):
    importers = [
        name
        for name, module in modules.items()
        if not name.startswith("experiments")
        and any(used.startswith("experiments") for used in imported_modules(module, modules))
    ]
    assert importers == [], "\n".join(importers)


def test_no_cycle_between_modules(modules):
    assert_no_cycle({name: imported_modules(module, modules) for name, module in modules.items()})


def test_no_cycle_between_folders(modules):
    # tf_placer/ itself holds leaves and the face, so its modules count one by one.
    def folder(name: str) -> str:
        return name if modules[name].folder == "tf_placer" else modules[name].folder

    edges: dict[str, set[str]] = {}
    for name, module in modules.items():
        uses = {folder(used) for used in imported_modules(module, modules)}
        edges.setdefault(folder(name), set()).update(uses - {folder(name)})
    assert_no_cycle(edges)


def assert_no_cycle(edges: dict[str, set[str]]) -> None:
    """Fails with the cycle's members."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def test_figures_stay_within_their_limits(root):
    lines = violations(figures(root), limits(root))
    assert lines == [], "\n".join(lines)


def test_flags_are_defined_in_command_line_modules_only(modules):
    offenders = [
        name
        for name, module in modules.items()
        if not name.startswith("experiments")
        and name not in _FLAG_MODULES
        and any(_imports_flags(node) for node in ast.walk(module.tree))
    ]
    assert offenders == [], "\n".join(offenders)


def _imports_flags(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "absl.flags" or (
            node.module == "absl" and any(alias.name == "flags" for alias in node.names)
        )
    return isinstance(node, ast.Import) and any(
        alias.name in ("absl.flags", "argparse") for alias in node.names
    )


def test_names_say_what_a_module_holds(modules):
    offenders = [name for name in modules if SHAPELESS_NAMES & set(name.split("."))]
    assert offenders == [], "\n".join(offenders)


def test_functions_fit_on_a_screen(root):
    found = list(source_modules(root).values())
    found += [read_module(root, file) for file in (root / "tests").rglob("*.py")]
    long = [
        f"{module.path}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == [], "\n".join(long)


def test_the_rules_see_a_violation(tmp_path):
    # The tests above pass on an empty list too; this one shows that the list fills.
    for file, text in (
        (tmp_path / "colocation" / "low.py", "def f():\n    from tf_placer.search import high\n"),
        (tmp_path / "tf_placer" / "search" / "high.py", "import colocation.low\n"),
    ):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    found = source_modules(tmp_path)
    assert imported_modules(found["colocation.low"], found) == {"tf_placer.search.high"}
    rows = ["| 0 | `colocation/` |", "| 3 | `tf_placer/grouper/`, `search/` |", "| 6 | `tf_placer/` face |"]
    bands = read_bands("\n".join(rows))
    assert bands == {"colocation": 0, "tf_placer.grouper": 3, "tf_placer.search": 3, "tf_placer": 6}
    assert band_of("tf_placer.search.high", bands) > band_of("colocation.low", bands)
    with pytest.raises(pytest.fail.Exception, match="import cycle"):
        assert_no_cycle({name: imported_modules(module, found) for name, module in found.items()})
