"""SIGKILL at random moments of a search: nothing measured is lost, nothing is measured twice, the end is the same."""

import json
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

from tests.tf_placer.search import killable_search
from tf_placer.search.search import JOURNAL

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[3]
KILLS = 3
DELAY_S = 0.02


def start(method, folder):
    command = [sys.executable, "-m", killable_search.__name__, method, str(folder), str(DELAY_S)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def whole_lines(journal):
    return journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []


@pytest.mark.parametrize("method", ["hdp", "random"])
def test_killed_at_random_moments(method, tmp_path):
    expected = killable_search.run(method, tmp_path / "whole", 0.0)
    whole = whole_lines(tmp_path / "whole" / JOURNAL)
    folder, generator, before = tmp_path / "killed", random.Random(f"{method} 0"), []
    journal = folder / JOURNAL
    for kill in range(1, KILLS + 1):
        target = len(whole) * kill // (KILLS + 1)
        with start(method, folder) as child:
            while len(whole_lines(journal)) < target:
                assert child.poll() is None, "it ended before it could be killed"
                time.sleep(0.005)
            # Up to half of the way to the next target: some placements more, perhaps some rounds and their saves.
            time.sleep(generator.uniform(0, DELAY_S * len(whole) / (KILLS + 1) / 2))
            child.kill()
            child.wait()
        now = whole_lines(journal)
        assert now[: len(before)] == before, "what was measured before an earlier kill is gone"
        assert len(now) < len(whole), "it was killed too late"
        before = now
    with start(method, folder) as child:
        found = json.loads(child.communicate()[0])
    after = whole_lines(journal)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) == len(whole) and set(after) == set(whole)
    assert found == expected
