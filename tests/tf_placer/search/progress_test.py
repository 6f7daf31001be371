"""Progress: a bar on a terminal, lines elsewhere."""

import dataclasses
import io
import math
import re

import pytest
import rich.console

from tf_placer.search.known import Budget
from tf_placer.search.recorder import ConsoleProgress, HistoryEntry

ENTRY = HistoryEntry(evaluations=5, elapsed_s=2.0, best_s=0.0123, mean_s=0.02, failed=0)


@pytest.mark.parametrize("budget", [Budget(10.0), Budget(evaluations=20), Budget(10.0, 20)])
@pytest.mark.parametrize("terminal", [False, True])
def test_shows_best_and_count(budget, terminal):
    stream = io.StringIO()
    console = rich.console.Console(file=stream, force_terminal=terminal, width=120, color_system=None)
    with ConsoleProgress("hdp", budget, console) as progress:
        for _ in range(3):
            progress.show(ENTRY)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "best 12.3 ms, mean 20.0 ms, 5 tried" in text
    if terminal:
        # 2 of 10 s, or 5 of 20 evaluations, whichever is more.
        assert ("25%" if budget.evaluations else "20%") in text
    else:
        assert text.count("\n") == 1, "a line every ten seconds, not for every round"


@pytest.mark.parametrize(
    ("best_s", "mean_s", "expected"),
    [
        (math.nan, math.nan, "hdp: 2 s, nothing fits yet, 5 tried\n"),
        (0.0123, math.nan, "hdp: 2 s, best 12.3 ms, nothing of the last round ran, 5 tried\n"),
    ],
)
def test_what_does_not_run_has_no_time(best_s, mean_s, expected):
    stream = io.StringIO()
    with ConsoleProgress("hdp", Budget(10.0), rich.console.Console(file=stream, width=120)) as progress:
        progress.show(dataclasses.replace(ENTRY, best_s=best_s, mean_s=mean_s))
    assert stream.getvalue() == expected
