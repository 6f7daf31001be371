"""Tests in a child process: the mark ``own_process``. PYTEST_DONT_REWRITE

TensorFlow fixes its logical devices when its first op runs, and a process that is connected to workers stays connected.
The selected tests of a file run together in a fork of a process that has imported TensorFlow, each with its own result:

    pytestmark = pytest.mark.own_process(exact=True)

Arguments of the mark:

    a name          one process for each name, where the tests of a file need several
    exact           ``exact_mode`` of ``tests.logical_devices``; ``exact="soft"`` has soft placement
    env             environment variables of the process, on top of this one's
    timeout_s       seconds after which the process is killed, 900 without
"""

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
_Reports = dict[str, list[pytest.TestReport]]
_RUNS = pytest.StashKey[dict[tuple, tuple[_Reports, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RUNS] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Reports what the child process found of a test; the first test of a process runs it."""
    if item.get_closest_marker("own_process") is None or _Child in map(
        type, item.config.pluginmanager.get_plugins()
    ):
        return None
    runs, key = item.config.stash[_RUNS], _process_of(item)
    if key not in runs:
        runs[key] = _run([other for other in item.session.items if _process_of(other) == key])
    reports, ending = runs[key]
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports.get(item.nodeid, []):
        item.ihook.pytest_runtest_logreport(report=report)
    if "teardown" not in (report.when for report in reports.get(item.nodeid, [])):
        crash = pytest.TestReport(item.nodeid, item.location, {}, "failed", ending, "call")
        item.ihook.pytest_runtest_logreport(report=crash)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    item.session._setupstate.teardown_exact(nextitem)
    return True


def _process_of(item: pytest.Item) -> tuple | None:
    """Key of the process that a test runs in; None for this one."""
    mark = item.get_closest_marker("own_process")
    return None if mark is None else (item.path, repr(mark.args), repr(mark.kwargs))


def _run(items: Sequence[pytest.Item]) -> tuple[_Reports, str]:
    """Runs tests in a child process: their reports, and how the process ended."""
    config, mark = items[0].config, items[0].get_closest_marker("own_process")
    assert mark is not None
    option, timeout_s = config.option, mark.kwargs.get("timeout_s", 900)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("reports", "output"):  # also where the process does not begin
            (folder / file).touch()
        arguments = [
            f"--rootdir={config.rootpath}",
            f"--basetemp={folder / 'tmp'}",
            f"--tb={option.tbstyle}",
            f"--verbosity={option.verbose}",
            f"--maxfail={option.maxfail or 0}",
            *("-c", str(config.inipath), "-p", "no:cacheprovider", str(items[0].path)),
        ]
        child = processes_with_tensorflow().Process(
            target=_run_as_child,
            args=(folder, arguments, [item.nodeid for item in items], dict(os.environ), mark.kwargs),
        )
        # TensorFlow talks while it is imported.
        with config.pluginmanager.getplugin("capturemanager").item_capture("setup", items[0]):
            child.start()
        try:
            child.join(timeout_s)
        finally:
            status = child.exitcode
            child.kill()
            child.join()
            child.close()
        ended = f"was killed after {timeout_s} s" if status is None else f"ended with status {status}"
        reports: _Reports = {}
        for line in (folder / "reports").read_text().splitlines():
            report = config.hook.pytest_report_from_serializable(config=config, data=json.loads(line))
            reports.setdefault(report.nodeid, []).append(report)
        return reports, f"the process {ended}:\n{(folder / 'output').read_text(errors='replace')[-4000:]}"


def python(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of Python that has ended, and what it printed."""
    own = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False, timeout=300)


def processes_with_tensorflow() -> ForkServerContext:
    """Forks of a process that has imported TensorFlow, which takes seconds."""
    context = multiprocessing.get_context("forkserver")
    # All that a placed function needs, search methods too; none of it starts TensorFlow's runtime.
    context.set_forkserver_preload(["tensorflow", "keras", "tf_placer.automatic.auto_placed"])
    return context


def _run_as_child(
    folder: Path,
    arguments: list[str],
    nodeids: list[str],
    environment: dict[str, str],
    settings: dict[str, Any],
) -> None:
    output = os.open(folder / "output", os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(
        environment, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2", **settings.get("env", {})
    )
    os.environ.pop("PYTEST_ADDOPTS", None)
    gc.freeze()  # moving a variable looks through everything alive; modules need not be looked at
    if settings.get("exact"):
        from tests.logical_devices import exact_mode

        exact_mode(soft_placement=settings["exact"] == "soft")
    raise SystemExit(pytest.main(arguments, plugins=[_Child(folder / "reports", nodeids)]))


class _Child:
    """Plugin of the child: runs the tests that were selected, and writes their reports."""

    def __init__(self, file: Path, nodeids: list[str]) -> None:
        self._file, self._nodeids = file, set(nodeids)

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._nodeids]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._file.open("a") as file:
            file.write(json.dumps(data) + "\n")
