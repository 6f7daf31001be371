"""Which test runs when, where two processes run them (conftest.py of the root)."""

import importlib.util
import pathlib
import threading
import types

import pytest


@pytest.fixture(scope="module")
def settings(root: pathlib.Path) -> types.ModuleType:
    """The conftest.py of the root as a module."""
    spec = importlib.util.spec_from_file_location("root_conftest", root / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_that_run_first_are_there(root: pathlib.Path, settings: types.ModuleType) -> None:
    assert [name for name in settings.LONGEST_FIRST if not (root / "tests" / name).is_file()] == []


def enters_at_once(turns: object, *, alone: bool) -> threading.Thread | None:
    """None if it does; else the thread that waits."""
    thread = threading.Thread(target=turns.enter, kwargs={"alone": alone}, daemon=True)  # type: ignore[attr-defined]
    thread.start()
    thread.join(0.3)
    return thread if thread.is_alive() else None


def test_one_that_is_alone_waits_for_the_others_and_they_for_it(
    tmp_path: pathlib.Path, settings: types.ModuleType
) -> None:
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
