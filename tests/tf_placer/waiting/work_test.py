"""What will be done, in a sentence."""

import pytest

from tf_placer.errors import InputError
from tf_placer.waiting.work import Phase, Work, about

WORK = Work((Phase("reading", 8.0, "reading x"), Phase("searching", 50.4), Phase("writing", 0.2)))


def test_the_sentence_names_every_phase_and_their_sum():
    assert WORK.sentence() == "This takes about 59 s: reading 8 s, searching 50 s, writing under 1 s."


def test_what_nobody_knows_is_said():
    work = Work((Phase("reading", 8.0), Phase("searching", None)), "Once.")
    assert not work.is_known
    assert work.sentence() == "This takes at least 8 s: reading 8 s, searching for a time not known. Once."


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
