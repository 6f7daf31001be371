"""What is imported, declared and pinned agree, and the build asks for TensorFlow only where there is none that fits."""

import ast
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import wheel_backend
from tools.compile_libraries import all_libraries
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


def test_every_import_is_declared(root, project):
    declared = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    distributions_of = importlib.metadata.packages_distributions()
    undeclared = []
    for module in source_modules(root).values():
        if module.name.startswith("tools"):
            continue  # not installed
        packages: set[str] = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                packages.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                packages.add(node.module.partition(".")[0])
        for package in packages:
            if package in SOURCE_ROOTS or package in sys.stdlib_module_names:
                continue
            if not declared & {canonicalize_name(name) for name in distributions_of.get(package, ())}:
                undeclared.append(f"{module.path} imports {package}, which pyproject.toml does not name")
    assert undeclared == [], "\n".join(undeclared)


def test_every_requirement_is_pinned_within_its_range(project, pins):
    assert [
        text
        for text in [*project["dependencies"], *project["optional-dependencies"]["test"]]
        for requirement in [Requirement(text)]
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0.dev0"))
    ] == [], "requirements.txt has no pin, or one outside the range, for these"


def test_pins_are_complete_and_installed(pins):
    installed = {
        canonicalize_name(distribution.name): distribution
        for distribution in importlib.metadata.distributions()
        if canonicalize_name(distribution.name) in pins
    }
    assert [
        name for name, version in pins.items() if name not in installed or installed[name].version != version
    ] == [], "`make setup` installs the pinned versions of these"
    needed = {
        canonicalize_name(requirement.name)
        for distribution in installed.values()
        for requirement in map(Requirement, distribution.requires or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    assert sorted(needed - pins.keys()) == [], "needed by a pinned package, but not pinned"


def test_the_command_exists(root, project):
    module_name, _, function = project["scripts"]["tf-placer"].partition(":")
    tree = source_modules(root)[module_name].tree
    assert function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_the_environment_of_a_build_has_what_compiling_imports(root):
    code = "import sys, tools.compile_libraries; print(*{name.partition('.')[0] for name in sys.modules})"
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=root)
    packages = importlib.metadata.packages_distributions()
    loaded = {*printed.decode().split()} & packages.keys() - set(SOURCE_ROOTS)
    needed = {canonicalize_name(packages[name][0]) for name in loaded}
    system = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    declared = {canonicalize_name(Requirement(text).name) for text in system["requires"]}
    with_tensorflow = {"numpy", "typing-extensions"}
    assert {"annotated-types"} <= needed - with_tensorflow <= declared


@pytest.mark.slow
def test_the_wheel_holds_all_that_an_installed_tf_placer_reads(root, tmp_path):
    # A copy: setuptools leaves build/ in the source, and what an earlier build left there would be packed.
    source = tmp_path / "source"
    installed = sorted(set(SOURCE_ROOTS) - {"tools"})
    for folder in (*installed, "tests", "tools"):
        shutil.copytree(root / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(root / file, source / file)
    # Compiled against this machine's TensorFlow, so it must stay here.
    (source / "tf_placer" / "ops" / "_tf_placer_ops_0.so").touch()
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(tmp_path), str(source)],
        check=True,
        timeout=300,
    )
    [wheel] = tmp_path.glob("tf_placer-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [entry_points] = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
        assert "tf-placer = tf_placer.__main__:console_main" in archive.read(entry_points).decode()
    packed = {name for name in names if ".dist-info/" not in name}
    expected = {
        str(file.relative_to(root))
        for folder in installed
        for file in (root / folder).rglob("*")
        if re.fullmatch(r"\.(py|pyi|cc|h|inc|toml|json|txt|md|npz|html|css|js)", file.suffix)
        or file.name in ("LICENSE", "NOTICE", "py.typed")
    }
    compiled = {str(library.folder.relative_to(root) / library.file_name) for library in all_libraries()}
    assert len(compiled) == 3 and packed == expected | compiled
    assert {
        "tf_placer/ops/cc/simulator.cc",
        "tf_placer/ops/cc/simulator.h",
        "tf_placer/rewrite/cc/plan_pass.h",
        "tf_placer/workers/cc/loopback.cc",
        "tf_placer/cluster/models.toml",
        "tf_placer/cluster/presets/k40x2.toml",
    } <= packed


def test_where_tensorflow_is_installed_it_is_not_asked_for(tmp_path, monkeypatch):
    # As pip hides what is installed: a path of its own, which empties Python's.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.path[:] = sys.path[:4]")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert wheel_backend.missing_tensorflow() == []
    assert "PYTHONPATH" not in wheel_backend.environment_with_tensorflow()


@pytest.mark.parametrize("version", ["", "2.20.0", "2.210.0"])
def test_where_there_is_none_that_fits_it_is_of_the_build(version, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '{version}'\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PYTHONPATH", "of-the-build")
    assert wheel_backend.missing_tensorflow() == ["tensorflow==2.21.*"]
    assert wheel_backend.environment_with_tensorflow()["PYTHONPATH"] == "of-the-build"
