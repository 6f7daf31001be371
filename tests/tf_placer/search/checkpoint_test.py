"""Checkpoints: recorder and learner of one moment, or those of the moment before."""

import json
import os

import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.search.checkpoint import FILE_NAME, Checkpoint

IDENTITY = {"method": "hdp", "seed": 3}
SETTINGS = {"rate": 0.1, "widths": (3, 4)}


class Learner(tf.Module):
    """Two variables, one of them behind a list."""

    def __init__(self, value=0.0):
        super().__init__()
        self.weights = [tf.Variable([value, value])]
        self.count = tf.Variable(int(value))


def state(rounds):
    return {"best_s": float("nan") if not rounds else 1 / rounds, "history": [[i] for i in range(rounds)]}


def saved(folder, rounds=2, value=5.0):
    """A folder with one save in it."""
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
    checkpoint = Checkpoint(tmp_path, IDENTITY, 0.0)
    assert checkpoint.recorder is None
    with pytest.raises(InputError, match=r"holds a search with seed 3, not 4; give that, or another folder"):
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
    with pytest.raises(InputError, match=f"holds a search with {key} .*, not 0.2"):
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
        kept = Checkpoint(tmp_path, IDENTITY, 0.0).recorder
        assert kept == state(3 if last else 1)
    before = os.stat(tmp_path / FILE_NAME).st_ino
    checkpoint.save(3, lambda: state(3), last=True)
    assert os.stat(tmp_path / FILE_NAME).st_ino == before, "it was saved already"


def test_a_learner_that_does_not_fit_is_not_half_restored_in_silence(tmp_path):
    saved(tmp_path)

    class Other(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable(0)

    with pytest.raises(InputError, match=r"learner-2\.\* cannot be restored .* delete .*search.json"):
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
    with pytest.raises(InputError, match="cannot be restored"):
        Checkpoint(tmp_path, IDENTITY, 0.0).track(Learner(), SETTINGS)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", json.dumps({"schema_version": 0})])
def test_damaged_files_are_told(tmp_path, content):
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(InputError, match=r"search.json cannot be read .* delete it to begin anew") as error:
        Checkpoint(tmp_path, IDENTITY, 0.0)
    assert "\n" not in str(error.value)
