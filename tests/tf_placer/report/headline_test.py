"""The verdict's first sentence is large; nothing of it is lost."""

import pytest

from tf_placer.report.page import headline_and_notes


@pytest.mark.parametrize(
    ("verdict", "headline", "notes"),
    [
        (
            "auto is 39.0% faster than a single device in the simulator.",
            "auto is 39.0% faster than a single device in the simulator.",
            (),
        ),
        (
            "hdp is NOT faster than a single device in the simulator (1.5% slower). heft is faster still, 7.5 ms.",
            "hdp is NOT faster than a single device in the simulator (1.5% slower).",
            ("heft is faster still, 7.5 ms.",),
        ),
        (
            "Recommended: auto. Clearly faster than a single device.\nauto: 3% faster.\nrandom: 2% slower.",
            "Recommended: auto. Clearly faster than a single device.",
            ("auto: 3% faster.", "random: 2% slower."),
        ),
        ("", "", ()),
    ],
)
def test_sentences_are_parted(verdict, headline, notes):
    assert headline_and_notes(verdict) == (headline, notes)
