"""Test-wide settings: quiet TensorFlow, fixed seeds, GPUs shared rather than hidden, and who runs beside whom."""

import fcntl
import os
import signal

# Before anything imports TensorFlow, which reads these once.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Worker processes share a GPU with the test process; without growth the first one takes all its memory.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
# matplotlib must not look for a display.
os.environ.setdefault("MPLBACKEND", "Agg")

import gc
import pathlib
import random
import sys
from collections.abc import Iterator

import numpy as np
import pytest

# A suite in the background of a shell's script is begun with Ctrl-C ignored, which tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.own_process"]


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The repository root; under Bazel the copy of it that the test was given."""
    # absolute, not resolve: under Bazel this file is a link into the checkout, where undeclared files lie.
    return pathlib.Path(__file__).absolute().parent


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Gives every test the same random state, so that a failure does not depend on the tests before it."""
    random.seed(0)
    np.random.seed(0)
    # Only where a test already uses TensorFlow: importing it takes seconds.
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(0)


@pytest.fixture(autouse=True, scope="module")
def nothing_of_other_files_is_looked_through() -> None:
    """Leaves modules and what earlier files have made out of garbage collections, which are most of some tests' time.

    Moving a variable looks through everything alive, too.
    """
    gc.collect()
    gc.freeze()


# Files of ten seconds and more, of processor time; the first ones have the slow tests that take longest.
LONGEST_FIRST = (
    "docs/commands_run_test.py",
    "tf_placer/planning/race_test.py",
    "tf_placer/transform/split/programs_test.py",
    "tf_placer/command_line/workload_facts_test.py",
    "corpus/corpus_test.py",
    "conformance/methods_test.py",
    "tf_placer/automatic/auto_place_uses_test.py",
    "tf_placer/main_test.py",
    "tf_placer/rewrite/saved_model_answers_test.py",
    "tf_placer/rewrite/placed_function_order_test.py",
    "equivalence/equivalence_test.py",
    "tf_placer/agents/mars/learner_test.py",
    "tf_placer/rewrite/custom_gradients_test.py",
    "tf_placer/rewrite/host_resources_test.py",
    "tf_placer/rewrite/placed_function_test.py",
    "fuzz/fuzz_test.py",
    "tf_placer/graph/item_test.py",
    "tf_placer/agents/placeto/learner_test.py",
    "tf_placer/agents/colocrl/learner_test.py",
    "tf_placer/agents/hdp/learner_test.py",
    "tf_placer/evaluation/runtime_test.py",
    "tf_placer/evaluation/failure_injection_test.py",
    "tf_placer/workers/local_workers_test.py",
    "tf_placer/search/search_test.py",
    "tf_placer/command_line/killed_export_test.py",
)


class Turns:
    """Lets tests of several processes run at the same time, but one that is marked ``alone`` only by itself.

    All processes of a run lock the same two files of the checkout: nothing has to be made or removed.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._gate, self._room = (
            os.open(folder / name, os.O_RDONLY) for name in ("pyproject.toml", "conftest.py")
        )

    def enter(self, *, alone: bool) -> None:
        """Waits until nobody runs who may not run beside this test."""
        # Who waits to be alone holds the gate, or tests of the others would follow each other without end.
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def leave(self) -> None:
        fcntl.flock(self._room, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._room)


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


TURNS = pytest.StashKey[Turns]()


def pytest_configure(config: pytest.Config) -> None:
    """Where xdist runs the tests in several processes, they take turns."""
    if hasattr(config, "workerinput"):
        config.stash[TURNS] = Turns(config.rootpath)


def pytest_unconfigure(config: pytest.Config) -> None:
    if TURNS in config.stash:
        config.stash[TURNS].close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Runs one test, its fixtures included, when it is its turn."""
    turns = item.config.stash.get(TURNS, None)
    if turns is None:
        return (yield)
    turns.enter(alone=is_alone(item))
    try:
        return (yield)
    finally:
        turns.leave()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the long files first and those that must be alone last, so that two processes end at the same time."""
    folder = pathlib.Path(__file__).parent / "tests"
    longest = {folder / name: place for place, name in enumerate(LONGEST_FIRST)}
    in_company = {item.path for item in items if not is_alone(item)}
    items.sort(key=lambda item: (item.path not in in_company, longest.get(item.path, len(longest))))
