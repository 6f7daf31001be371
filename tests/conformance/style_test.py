"""The linter, the formatter and the type checker are part of the tests."""

import os
import pathlib
import subprocess
import sys

import pytest

FOLDERS = ("colocation", "tf_placer", "experiments", "tools", "tests", "conftest.py")


def run(root: pathlib.Path, *command: str) -> str:
    """Returns what a checker of the pinned requirements reports; empty when it is content."""
    # Bazel's PYTHONPATH names the runfiles, which mypy would then take for an installed package.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=environment,
    )
    if f"No module named {command[0]}" in result.stderr:
        pytest.fail(f"{command[0]} is not installed; `pip install --requirement requirements.txt`")
    return "" if result.returncode == 0 else result.stdout + result.stderr


def python_files(root: pathlib.Path) -> list[str]:
    """Every Python file by name: under Bazel they are links, which a checker that walks folders skips."""
    found = [
        file
        for name in FOLDERS
        for file in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))
    ]
    return sorted(str(file.relative_to(root)) for file in found)


def test_ruff_finds_nothing(root: pathlib.Path) -> None:
    report = run(root, "ruff", "check", "--no-cache", "--output-format=concise", *python_files(root))
    assert not report, report


def test_files_are_formatted(root: pathlib.Path) -> None:
    report = run(
        root, "ruff", "format", "--no-cache", "--check", "--output-format=concise", *python_files(root)
    )
    assert not report, f"run `make format`\n{report}"


def test_types_agree(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # A cache of its own under Bazel, where the checkout cannot be written to; .mypy_cache otherwise.
    cache = (
        root / ".mypy_cache"
        if (root / "Makefile").exists() and not (root / "Makefile").is_symlink()
        else tmp_path
    )
    report = run(root, "mypy", "--cache-dir", str(cache), "--no-error-summary")
    assert not report, report


def test_a_fault_is_found(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    faulty = tmp_path / "faulty.py"
    faulty.write_text("import os\nx: int = 'text'\n")
    assert "F401" in run(root, "ruff", "check", "--no-cache", str(faulty))
    assert "reformat" in run(root, "ruff", "format", "--no-cache", "--check", str(faulty))
    assert "assignment" in run(root, "mypy", "--cache-dir", str(tmp_path / "cache"), str(faulty))
