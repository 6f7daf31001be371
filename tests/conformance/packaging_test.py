"""What is imported, what is declared and what is pinned agree."""

from __future__ import annotations

import ast
import importlib.metadata
import pathlib
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.module_map import SOURCE_ROOTS, source_modules


@pytest.fixture(scope="module")
def project(root: pathlib.Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def pins(root: pathlib.Path) -> dict[str, str]:
    """Distribution -> pinned version."""
    lines = (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in pairs}


def test_every_import_is_declared(root: pathlib.Path, project: dict) -> None:
    declared = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    distributions_of = importlib.metadata.packages_distributions()
    undeclared = []
    for module in source_modules(root).values():
        if module.name.startswith("tools"):
            continue  # not installed
        for package in imported_packages(module.tree):
            if package in SOURCE_ROOTS or package in sys.stdlib_module_names:
                continue
            if not declared & {canonicalize_name(name) for name in distributions_of.get(package, ())}:
                undeclared.append(f"{module.path} imports {package}, which pyproject.toml does not name")
    assert undeclared == [], "\n".join(undeclared)


def imported_packages(tree: ast.Module) -> set[str]:
    """The top-level names a module imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_every_requirement_is_pinned_within_its_range(project: dict, pins: dict[str, str]) -> None:
    texts = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    wrong = [
        text
        for text in texts
        for requirement in [Requirement(text)]
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0.dev0"))
    ]
    assert wrong == [], "requirements.txt has no pin, or one outside the range, for these"


def test_pins_are_complete_and_installed(pins: dict[str, str]) -> None:
    installed = {
        canonicalize_name(distribution.name): distribution
        for distribution in importlib.metadata.distributions()
        if canonicalize_name(distribution.name) in pins
    }
    other = [
        name for name, version in pins.items() if name not in installed or installed[name].version != version
    ]
    assert other == [], "`make setup` installs the pinned versions of these"
    needed = {
        canonicalize_name(requirement.name)
        for distribution in installed.values()
        for requirement in map(Requirement, distribution.requires or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    assert sorted(needed - pins.keys()) == [], "needed by a pinned package, but not pinned"


def test_the_command_exists(root: pathlib.Path, project: dict) -> None:
    module_name, _, function = project["scripts"]["tf-placer"].partition(":")
    tree = source_modules(root)[module_name].tree
    assert function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
