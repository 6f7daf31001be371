"""Checkpoints are of one moment, and a search that is killed goes on as if nothing had happened."""

import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.refused import refused
from tests.tf_placer.problem.small_problems import (
    branches_problem,
    multi_branch_bound_s,
    multi_branch_problem,
    without_overheads,
)
from tests.tf_placer.search import killable_search
from tests.tf_placer.search.killable_search import METHODS
from tests.tf_placer.search.killed import DiesAfter, Kill, Measuring, comparable
from tests.tf_placer.search.small_learner import small_learner
from tf_placer.base.files import reserved
from tf_placer.base.method_spec import Role
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.search import methods, recorder
from tf_placer.search.checkpoint import FILE_NAME, Checkpoint
from tf_placer.search.round import Starts
from tf_placer.search.search import JOURNAL, NothingFits, search

IDENTITY = {"method": "hdp", "seed": 3}
SETTINGS = {"rate": 0.1, "widths": (3, 4)}
ROOT = pathlib.Path(__file__).parents[3]
RANDOM_KILLS = 3
DELAY_S = 0.02
HDP_EVALUATIONS, ROUND = 12_800, 128  # samples of all updates and of one, of HdpConfig()


class Learner(tf.Module):
    """Two variables, one of them behind a list."""

    def __init__(self, value=0.0):
        super().__init__()
        self.weights = [tf.Variable([value, value])]
        self.count = tf.Variable(int(value))


def state(rounds):
    return {"best_s": float("nan") if not rounds else 1 / rounds, "history": [[i] for i in range(rounds)]}


def saved(folder, rounds=2, value=5.0):
    checkpoint = Checkpoint(folder, IDENTITY, 0.0)
    checkpoint.track(Learner(value), SETTINGS)
    checkpoint.save(rounds, lambda: state(rounds))


def test_both_come_back(tmp_path):
    saved(tmp_path / "new" / "folder")
    checkpoint, learner = Checkpoint(tmp_path / "new" / "folder", IDENTITY, 0.0), Learner()
    assert checkpoint.recorder == state(2)
    checkpoint.track(learner, SETTINGS)
    assert learner.weights[0].numpy().tolist() == [5.0, 5.0] and int(learner.count) == 5


def test_a_new_folder_is_claimed_at_once(tmp_path):
    assert Checkpoint(tmp_path, IDENTITY, 0.0).recorder is None
    with refused(r"holds a search with seed 3, not 4; give that, or another folder"):
        Checkpoint(tmp_path, {**IDENTITY, "seed": 4}, 0.0)
    again = Checkpoint(tmp_path, IDENTITY, 0.0)
    again.track(Learner(), {"rate": 7})  # nothing was learned with the other settings yet
    assert again.recorder is None


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = Checkpoint(None, IDENTITY, 0.0)
    checkpoint.track(Learner(), SETTINGS)
    checkpoint.save(1, lambda: state(1), last=True)
    assert checkpoint.recorder is None and os.listdir(tmp_path) == []


@pytest.mark.parametrize("key", ["rate", "more"])
def test_other_settings_are_refused(tmp_path, key):
    saved(tmp_path)
    with refused(f"holds a search with {key} .*, not 0.2"):
        Checkpoint(tmp_path, IDENTITY, 0.0).track(Learner(), {**SETTINGS, key: 0.2})


def test_only_the_newest_learner_is_kept_and_what_kills_left_behind_goes(tmp_path):
    checkpoint = Checkpoint(tmp_path, IDENTITY, 0.0)
    checkpoint.track(Learner(1.0), SETTINGS)
    checkpoint.save(1, lambda: state(1))
    # What a kill in the midst of the next save leaves: files that search.json does not name yet.
    (tmp_path / "learner-2_temp").mkdir()
    (tmp_path / "learner-2.index").write_bytes(b"half")
    learner = Learner()
    again = Checkpoint(tmp_path, IDENTITY, 0.0)
    again.track(learner, SETTINGS)
    assert int(learner.count) == 1 and again.recorder == state(1)
    learner.count.assign(2)
    again.save(2, lambda: state(2))
    assert sorted(os.listdir(tmp_path)) == ["learner-2.data-00000-of-00001", "learner-2.index", FILE_NAME]
    last = Learner()
    Checkpoint(tmp_path, IDENTITY, 0.0).track(last, SETTINGS)
    assert int(last.count) == 2


def test_saves_are_some_time_apart_but_the_last_one_is_made(tmp_path):
    checkpoint = Checkpoint(tmp_path, IDENTITY, 1000.0)
    for rounds, last in ((1, False), (2, False), (3, True)):
        checkpoint.save(rounds, lambda rounds=rounds: state(rounds), last)
        assert Checkpoint(tmp_path, IDENTITY, 0.0).recorder == state(3 if last else 1)
    before = os.stat(tmp_path / FILE_NAME).st_ino
    checkpoint.save(3, lambda: state(3), last=True)
    assert os.stat(tmp_path / FILE_NAME).st_ino == before, "it was saved already"


def test_a_learner_that_does_not_fit_is_not_half_restored_in_silence(tmp_path):
    saved(tmp_path)

    class Other(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable(0)

    with refused(r"learner-2\.\* cannot be restored .* delete .*search.json"):
        Checkpoint(tmp_path, IDENTITY, 0.0).track(Other(), SETTINGS)


@pytest.mark.parametrize("file", ["learner-2.index", "learner-2.data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damaged_learners_are_told(tmp_path, file, damage):
    saved(tmp_path)
    path = tmp_path / file
    content = path.read_bytes()
    middle = 2 if "data" in file else len(content) // 2
    if damage == "flip":
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
    elif damage == "cut":
        path.write_bytes(content[:middle])
    else:
        path.unlink()
    with refused("cannot be restored"):
        Checkpoint(tmp_path, IDENTITY, 0.0).track(Learner(), SETTINGS)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", json.dumps({"schema_version": 0})])
def test_damaged_files_are_told(tmp_path, content):
    (tmp_path / FILE_NAME).write_text(content)
    with refused(r"search.json cannot be read .* delete it to begin anew"):
        Checkpoint(tmp_path, IDENTITY, 0.0)


PROBLEM = branches_problem(3, 4)
SMALL_HDP = METHODS["hdp"]
EVALUATIONS = 44  # no multiple of a round of any method
# Two are the single devices; kills in the first round, between rounds, and within one.
KILLS = (1, 2, 3, 10, -1)


def measuring(dies_at=math.inf):
    return Measuring(PROBLEM, dies_at)


def searched(method, folder, evaluator, evaluations=EVALUATIONS, seed=1, **more):
    return search(
        PROBLEM, method, budget_evaluations=evaluations, seed=seed, evaluator=evaluator, checkpoint=folder,
        **more,
    )  # fmt: skip


def placements_in(journal):
    return [json.loads(line)["placement"] for line in journal.read_text().splitlines()[1:]]


@pytest.mark.parametrize(
    ("method", "kills"),
    [
        (small_learner, KILLS),
        ("random", KILLS),
        ("single", KILLS),
        # A learner of its own takes seconds to trace.
        pytest.param(SMALL_HDP, KILLS, id="hdp", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_evaluation_it_goes_on_and_measures_nothing_twice(method, kills, tmp_path):
    whole = measuring()
    expected = searched(method, tmp_path / "whole", whole)
    assert expected.evaluator == "simulated"
    moments = sorted({kill % whole.calls for kill in kills if kill < whole.calls})
    folder, calls = tmp_path / "killed", 0
    for count in moments:
        dying = measuring(count - calls)
        before = placements_in(folder / JOURNAL) if calls else []
        with pytest.raises(Kill):
            searched(method, folder, dying)
        calls += dying.calls
        now = placements_in(folder / JOURNAL)
        assert now[: len(before)] == before and len(now) == calls == count
    last = measuring()
    assert comparable(searched(method, folder, last)) == comparable(expected)
    measured = placements_in(folder / JOURNAL)
    assert calls + last.calls == len(measured) == len(set(measured)) == whole.calls
    assert sorted(measured) == sorted(placements_in(tmp_path / "whole" / JOURNAL))


@pytest.mark.parametrize(
    ("method", "kills"),
    [
        (small_learner, 2),
        ("random", 2),
        ("single", 1),  # its one round is done
        pytest.param(SMALL_HDP, 1, id="hdp", marks=pytest.mark.slow),
        pytest.param(SMALL_HDP, 2, id="hdp_twice", marks=pytest.mark.slow),
    ],
)
def test_a_simulated_search_goes_on_too(method, kills, tmp_path, monkeypatch):
    expected = searched(method, None, None)
    monkeypatch.setattr(sys.modules[search.__module__], "CHECKPOINT_EVERY_S", 0.0)
    for _ in range(kills):
        with pytest.raises(Kill):
            searched(method, tmp_path, None, progress=DiesAfter(1))
    assert comparable(searched(method, tmp_path, None)) == comparable(expected)
    assert not (tmp_path / JOURNAL).exists(), "simulating again is cheaper than keeping"


def test_a_finished_search_gives_its_result_again_and_goes_on_with_a_larger_budget(tmp_path):
    first = searched("random", tmp_path, measuring(), evaluations=32)
    idle = measuring()
    again = searched("random", tmp_path, idle, evaluations=32)
    assert comparable(again) == comparable(first) and idle.calls == 0
    assert again.search_s >= first.history[-1].elapsed_s
    more = searched("random", tmp_path, measuring(), evaluations=48)
    assert comparable(more) == comparable(searched("random", None, measuring(), evaluations=48))


def test_time_that_was_used_up_stays_used_up(tmp_path, monkeypatch):
    seconds = itertools.count()  # every look at the clock takes one
    monkeypatch.setattr(recorder, "time", types.SimpleNamespace(monotonic=lambda: float(next(seconds))))
    first = search(PROBLEM, "random", budget_s=6, evaluator=measuring(), checkpoint=tmp_path)
    idle = measuring()
    again = search(PROBLEM, "random", budget_s=6, evaluator=idle, checkpoint=tmp_path)
    assert comparable(again) == comparable(first) and idle.calls == 0


def test_ctrl_c_keeps_the_best_and_the_same_call_goes_on(tmp_path):
    first_round = measuring()
    searched("random", tmp_path / "first", first_round, evaluations=16)

    class Interrupted(Measuring):
        def evaluate(self, device_of_unit):
            if self.calls == first_round.calls:
                raise KeyboardInterrupt
            return super().evaluate(device_of_unit)

    expected = searched("random", None, measuring())
    interrupted = searched("random", tmp_path, Interrupted(PROBLEM))
    assert interrupted.interrupted and 16 <= interrupted.evaluations < EVALUATIONS
    assert interrupted.runtime_s == expected.history[0].best_s
    resumed = searched("random", tmp_path, measuring())
    assert comparable(resumed) == comparable(expected) and not resumed.interrupted


def test_two_searches_in_one_folder_are_refused(tmp_path):
    folder = tmp_path / "search"
    with reserved(folder, "the first search"), refused(r"^checkpoint=.*another run is"):
        search(PROBLEM, "random", budget_evaluations=16, checkpoint=folder)
    assert not folder.exists()


@pytest.mark.parametrize("folder", ["/proc/search", "{tmp}/file/search"])
def test_a_folder_that_cannot_be_written_to_is_told_before_the_search(tmp_path, folder):
    (tmp_path / "file").touch()
    idle = measuring()
    with refused(r"^checkpoint=.*; give another folder"):
        search(PROBLEM, "random", evaluator=idle, budget_s=3600, checkpoint=folder.format(tmp=tmp_path))
    with refused(r"measured\.jsonl: .*; give another folder"):
        JournaledEvaluator(idle, folder.format(tmp=tmp_path) + "/measured.jsonl")
    assert idle.calls == 0


def test_a_checkpoint_from_before_planners_were_kept_goes_on_too(tmp_path):
    searched("random", tmp_path, measuring(), evaluations=32)
    kept = json.loads((tmp_path / "search.json").read_text())
    (tmp_path / "search.json").write_text(json.dumps({**kept, "learner": None, "settings": None}))
    more = searched("random", tmp_path, measuring(), evaluations=48)
    assert comparable(more) == comparable(searched("random", None, measuring(), evaluations=48))


def test_another_search_is_refused(tmp_path):
    searched("random", tmp_path, measuring(), evaluations=16)
    with refused("holds a search with seed 1, not 2"):
        searched("random", tmp_path, measuring(), seed=2)
    with refused("holds a search with method 'random', not 'single'"):
        searched("single", tmp_path, measuring())
    other = branches_problem(3, 5)
    with refused("holds a search with problem"):
        search(other, "random", budget_evaluations=16, seed=1, checkpoint=tmp_path)


def test_an_evaluator_of_another_problem_is_refused():
    with refused("make it of that one"):
        search(branches_problem(3, 4), "random", budget_evaluations=1, evaluator=measuring())


def test_a_journal_of_the_callers_own_is_used(tmp_path):
    with JournaledEvaluator(measuring(), tmp_path / "own.jsonl") as evaluator:
        searched("random", tmp_path / "search", evaluator)
        assert evaluator.measured == len(placements_in(tmp_path / "own.jsonl")) > 0
    assert not (tmp_path / "search" / JOURNAL).exists()


def test_where_no_single_device_runs_rewards_are_relative_to_the_simulator():
    class NothingRuns(Measuring):
        def evaluate(self, device_of_unit):
            return super().evaluate(np.full_like(device_of_unit, PROBLEM.num_devices))

    starts = Starts(PROBLEM, NothingRuns(PROBLEM), methods.having(Role.BESIDE))
    assert starts.single_device_s is None
    assert starts.reference_s == SimulatedEvaluator(PROBLEM).evaluate(starts.plans).runtime_s.min()
    with pytest.raises(NothingFits, match="no placement of 'arrays' that runs on cluster 'toy2'"):
        searched("random", None, NothingRuns(PROBLEM))


def started(method, folder):
    command = [sys.executable, "-m", killable_search.__name__, method, str(folder), str(DELAY_S)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def whole_lines(journal):
    return journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hdp", "random"])
def test_killed_at_random_moments(method, tmp_path):
    expected = killable_search.run(method, tmp_path / "whole", 0.0)
    whole = whole_lines(tmp_path / "whole" / JOURNAL)
    folder, generator, before = tmp_path / "killed", random.Random(f"{method} 0"), []
    journal = folder / JOURNAL
    for kill in range(1, RANDOM_KILLS + 1):
        target = len(whole) * kill // (RANDOM_KILLS + 1)
        with started(method, folder) as child:
            while len(whole_lines(journal)) < target:
                assert child.poll() is None, "it ended before it could be killed"
                time.sleep(0.005)
            # Up to half of the way to the next target: some placements more, perhaps some rounds and their saves.
            time.sleep(generator.uniform(0, DELAY_S * len(whole) / (RANDOM_KILLS + 1) / 2))
            child.kill()
            child.wait()
        now = whole_lines(journal)
        assert now[: len(before)] == before, "what was measured before an earlier kill is gone"
        assert len(now) < len(whole), "it was killed too late"
        before = now
    with started(method, folder) as child:
        found = json.loads(child.communicate()[0])
    after = whole_lines(journal)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) == len(whole) and set(after) == set(whole)
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_hdp_finds_the_optimum(seed):
    problem = multi_branch_problem(without_overheads(Cluster.preset("k40x2")))
    # From one device: a list schedule is the optimum here, and nothing could be learned from it.
    start = problem.everything_on(0)
    result = search(problem, "hdp", budget_evaluations=1 + HDP_EVALUATIONS, seed=seed, start=start)
    assert [entry.evaluations for entry in result.history] == list(range(1, HDP_EVALUATIONS + 2, ROUND))
    # Half of the chains on each GPU: the bound and one crossing of 1 MiB.
    assert result.runtime_s == pytest.approx(multi_branch_bound_s() + 109_858e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_hdp_beats_random_search_with_as_many_evaluations_on_four_gpus(seed):
    # Not on two: blocks of the breadth-first order meet the optimum there within 2,000 tries.
    problem = multi_branch_problem(Cluster.preset("k40x4"), branches=16, depth=8)
    hdp, random = (
        search(problem, method, budget_evaluations=HDP_EVALUATIONS, seed=seed, **start)
        for method, start in (("hdp", {"start": problem.everything_on(0)}), ("random", {}))
    )
    assert hdp.evaluations == random.evaluations == HDP_EVALUATIONS
    assert multi_branch_bound_s(16, 8, devices=4) < hdp.runtime_s < random.runtime_s, f"seed {seed}"
