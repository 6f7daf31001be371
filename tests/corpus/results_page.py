"""Writes the page and the table that say which programs of the corpus are placed and which run as they are.

    python -m tests.corpus.results_page

``corpus_test.py`` holds both against what happens.
"""

import csv
import datetime
import io
from collections.abc import Iterable

from tests.corpus.program import Program, programs
from tests.logical_devices import REPOSITORY

PAGE = "docs/results/corpus.md"
TABLE = "docs/results/corpus.csv"
_HEAD = """\
# Which TensorFlow programs are placed, and which run as they are?

- Command: `make test-slow`, which runs all of `tests/corpus/corpus_test.py` (`make test-medium` runs one program of 12)
- Seed: 1, for the programs and for what is scattered
- Machine: 2 cores, 24 GiB of memory, no GPU; TensorFlow 2.21, Python 3.11
- Date: {date}

{count} programs of the kinds that TensorFlow users write run undecorated and under `auto_place`, and return
the same, bit for bit: results, gradients, variables, and what they printed, wrote and raised. {placed} are placed
in all their functions. Each of the other {as_it_is} has a function that runs as it is, with one warning that says why:

"""
_FOOT = """
[Every program](corpus.csv), with its topic and what it shows, is in one file.

`auto_place` puts every op on a device drawn at random, of two, but for ops that must be beside another.
So what can be split is split.

## Limits

- The programs say that results stay the same. They do not say that a placed program is faster.
- Up to a tenth of the placed programs may end on one of the two devices; a test holds them to that.
- The devices are logical ones of one CPU: bits on GPUs and on several machines are not compared here.
"""


def as_csv(corpus: Iterable[Program]) -> str:
    """All programs, a line each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("topic", "program", "shows", "placed", "warning"))
    for one in corpus:
        placed = "no" if one.why else "yes"
        writer.writerow((_words(one.topic), _words(one.name), one.shows, placed, _warning(one)))
    return text.getvalue()


def as_it_is(corpus: Iterable[Program]) -> str:
    """A Markdown table of the programs that have a function which runs as it is."""
    lines = ["| topic and program | shows | the warning says |", "|---|---|---|"]
    lines += [
        f"| {_words(one.topic)}: {_words(one.name)} | {_cell(one.shows)} | “{_cell(_warning(one))}” |"
        for one in corpus
        if one.why
    ]
    return "\n".join(lines) + "\n"


def _warning(program: Program) -> str:
    return f" {program.why} ".replace(" .", " ").replace(". ", " ").strip()


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(text: str) -> str:
    return text.replace("|", "or")


def main() -> None:
    corpus = list(programs().values())
    placed = sum(not program.why for program in corpus)
    head = _HEAD.format(
        date=datetime.date.today(), count=len(corpus), placed=placed, as_it_is=len(corpus) - placed
    )
    (REPOSITORY / PAGE).write_text(head + as_it_is(corpus) + _FOOT, encoding="utf-8")
    (REPOSITORY / TABLE).write_text(as_csv(corpus), encoding="utf-8")


if __name__ == "__main__":
    main()
