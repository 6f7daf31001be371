"""What will be done, in a sentence."""

import re

import pytest

from tf_placer.errors import InputError
from tf_placer.waiting.work import Phase, Work, about, roughly

WORK = Work((Phase("reading", 8.0, "reading x"), Phase("searching", 50.4), Phase("writing", 0.2)))


def test_the_sentence_names_every_phase_and_their_sum():
    assert WORK.sentence() == "This takes about 59 s: reading 8 s, searching 50 s, writing under 1 s."


def test_what_nobody_knows_is_said():
    work = Work((Phase("reading", 8.0), Phase("searching", None)), "Once.")
    assert not work.is_known
    assert work.sentence() == "This takes at least 8 s: reading 8 s, searching for a time not known. Once."


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        ((0.0,), "This takes less than a second: a under 1 s."),
        ((0.3, 0.4), "This takes less than a second: a under 1 s, b under 1 s."),
        ((0.6, 0.6), "This takes about 1 s: a under 1 s, b under 1 s."),
        ((200.0,), "This takes about 3 min: a 3 min."),
        ((None,), "This takes a time not known: a for a time not known."),
        ((0.2, None), "This takes a time not known: a under 1 s, b for a time not known."),
        ((2.0, None), "This takes at least 2 s: a 2 s, b for a time not known."),
    ],
)
def test_every_sentence_is_english(seconds, sentence):
    phases = zip("ab", seconds, strict=False)
    assert Work(tuple(Phase(name, took) for name, took in phases)).sentence() == sentence


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.3, 0.94, 0.95, 1.0, 42.0, 99.9, 100.0, 1e4])
def test_a_time_is_never_nothing_and_never_about_under(seconds):
    for text in (about(seconds), roughly(seconds), roughly(seconds, is_all=False)):
        assert not re.search(r"about under|least under|\b0 s|\b0 min", text), text


def test_other_expectations_leave_the_rest():
    expecting = WORK.expecting({"searching": 10.0})
    assert [phase.seconds for phase in expecting.phases] == [8.0, 10.0, 0.2]
    assert expecting.phases[0].key == "reading x"


def test_names_differ():
    with pytest.raises(InputError, match="two phases have one name: a, a"):
        Work((Phase("a", 1.0), Phase("a", 2.0)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "under 1 s"),
        (0.9, "under 1 s"),
        (1.4, "1 s"),
        (99.0, "99 s"),
        (150.0, "2 min"),
        (3600.0, "60 min"),
    ],
)
def test_seconds_as_people_say_them(seconds, text):
    assert about(seconds) == text
