"""The linter, the formatter and the type checker are part of the tests; which test runs when."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import types

import pytest


def run(root: pathlib.Path, *command: str) -> str:
    """Returns what a checker of the pinned requirements reports; empty when it is content."""
    # Bazel's PYTHONPATH names the runfiles, which mypy would then take for an installed package.
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=root, capture_output=True, text=True, check=False,
        timeout=240, env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )  # fmt: skip
    if f"No module named {command[0]}" in result.stderr:
        pytest.fail(f"{command[0]} is not installed; `pip install --requirement requirements.txt`")
    return "" if result.returncode == 0 else result.stdout + result.stderr


def python_files(root: pathlib.Path) -> list[str]:
    """Every Python file by name: under Bazel they are links, which a checker that walks folders skips."""
    found = [
        file
        for name in ("colocation", "tf_placer", "experiments", "tools", "tests", "conftest.py")
        for file in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))
    ]
    return sorted(str(file.relative_to(root)) for file in found)


def test_ruff_finds_nothing(root):
    report = run(root, "ruff", "check", "--no-cache", "--output-format=concise", *python_files(root))
    assert not report, report


def test_files_are_formatted(root):
    report = run(
        root, "ruff", "format", "--no-cache", "--check", "--output-format=concise", *python_files(root)
    )
    assert not report, f"run `make format`\n{report}"


def test_types_agree(root, tmp_path):
    # A cache of its own under Bazel, where the checkout cannot be written to; .mypy_cache otherwise.
    cache = (
        root / ".mypy_cache"
        if (root / "Makefile").exists() and not (root / "Makefile").is_symlink()
        else tmp_path
    )
    report = run(root, "mypy", "--cache-dir", str(cache), "--no-error-summary")
    assert not report, report


def test_a_fault_is_found(root, tmp_path):
    faulty = tmp_path / "faulty.py"
    faulty.write_text("import os\nx: int = 'text'\n")
    assert "F401" in run(root, "ruff", "check", "--no-cache", str(faulty))
    assert "reformat" in run(root, "ruff", "format", "--no-cache", "--check", str(faulty))
    assert "assignment" in run(root, "mypy", "--cache-dir", str(tmp_path / "cache"), str(faulty))


@pytest.fixture(scope="module")
def settings(root: pathlib.Path) -> types.ModuleType:
    """The conftest.py of the root as a module."""
    spec = importlib.util.spec_from_file_location("root_conftest", root / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_that_run_first_are_there(root, settings):
    assert [name for name in settings.LONGEST_FIRST if not (root / "tests" / name).is_file()] == []


def enters_at_once(turns: object, *, alone: bool) -> threading.Thread | None:
    """None if it does; else the thread that waits."""
    thread = threading.Thread(target=turns.enter, kwargs={"alone": alone}, daemon=True)  # type: ignore[attr-defined]
    thread.start()
    thread.join(0.3)
    return thread if thread.is_alive() else None


def test_one_that_is_alone_waits_for_the_others_and_they_for_it(tmp_path, settings):
    for name in ("pyproject.toml", "conftest.py"):
        (tmp_path / name).touch()
    first, second, alone, late = (settings.Turns(tmp_path) for _ in range(4))
    assert enters_at_once(first, alone=False) is None
    assert enters_at_once(second, alone=False) is None
    waiting = enters_at_once(alone, alone=True)
    assert waiting is not None
    behind = enters_at_once(late, alone=False)
    assert behind is not None, "or who would be alone waits for ever"
    first.leave()
    waiting.join(0.3)
    assert waiting.is_alive()
    second.leave()
    waiting.join()
    behind.join(0.3)
    assert behind.is_alive()
    alone.leave()
    behind.join()
    late.leave()
    for turns in (first, second, alone, late):
        turns.close()
