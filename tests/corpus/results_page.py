"""Writes the page that says which programs of the corpus are placed and which run as they are.

    python -m tests.corpus.results_page

``corpus_test.py`` holds the page against what happens.
"""

import datetime
import itertools
from collections.abc import Iterable

from tests.corpus.program import Program, programs
from tests.logical_devices import REPOSITORY

PAGE = "docs/results/corpus.md"
_HEAD = """\
# What runs decorated

- Command: `make test-slow`, which runs all of `tests/corpus/corpus_test.py` (`make test-medium` runs one program of 16)
- Seed: 1, for the programs and for what is scattered
- Machine: 2 cores, 24 GiB of memory, no GPU; TensorFlow 2.21, Python 3.11
- Date: {date}

{count} programs of the kinds that TensorFlow users write run undecorated and under `auto_place`, and return the same,
bit for bit: results, gradients, variables, what they printed, wrote and raised. `auto_place` puts every op that need
not be beside another on a device drawn at random, of two, so that what can be split is split. {placed} are placed in
all their functions; the other {as_it_is} have one that runs as it is, with one warning, for the reason in the table.

"""


def table(corpus: Iterable[Program]) -> str:
    """A Markdown table of all programs, by topic."""
    lines = ["| program | shows | |", "|---|---|---|"]
    for topic, members in itertools.groupby(corpus, lambda program: program.topic):
        lines.append(f"| **{topic.replace('_', ' ')}** | | |")
        lines += [f"| {one.name.replace('_', ' ')} | {_cell(one.shows)} | {_what(one)} |" for one in members]
    return "\n".join(lines) + "\n"


def _what(program: Program) -> str:
    return f"as it is: “{_cell(program.why.replace('.', '').strip())}”" if program.why else "placed"


def _cell(text: str) -> str:
    return text.replace("|", "or")


def main() -> None:
    corpus = list(programs().values())
    placed = sum(not program.why for program in corpus)
    head = _HEAD.format(
        date=datetime.date.today(), count=len(corpus), placed=placed, as_it_is=len(corpus) - placed
    )
    (REPOSITORY / PAGE).parent.mkdir(exist_ok=True)
    (REPOSITORY / PAGE).write_text(head + table(corpus), encoding="utf-8")


if __name__ == "__main__":
    main()
