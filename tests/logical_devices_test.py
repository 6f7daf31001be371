"""Programs in forks of a process that has imported TensorFlow."""

import pytest

from tests.logical_devices import outcomes_of


def test_a_program_that_fails_is_told_with_its_last_words():
    with pytest.raises(AssertionError, match=r"(?s)tests.no_such_program 1: status 1\n.*No module named"):
        outcomes_of("tests.no_such_program", "1")


def test_a_program_that_does_not_end_is_ended():
    with pytest.raises(AssertionError, match=r"not done after 0\.01 s"):
        outcomes_of("tests.endless", timeout_s=0.01)


def test_it_has_its_own_arguments_environment_and_output(monkeypatch):
    monkeypatch.setenv("TF_PLACER_ASKED", "here")
    outcome = outcomes_of("tests.asked_process", "a", "b")
    assert outcome["arguments"] == ["a", "b"]
    assert outcome["asked"] == "here"
    assert outcome["tensorflow_was_there"]
