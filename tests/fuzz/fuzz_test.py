"""Whatever is in a file: it is placed, or refused in one line, and nothing is left of what was refused."""

import pathlib

import pytest

from tests.fuzz.campaign import campaign

# Inputs of each kind: 80 with every test run, 2,000 in all.
SAMPLE = {"saved_model": 16, "meta_graph": 14, "plan": 40, "cluster": 10}
ALL = {"saved_model": 800, "meta_graph": 700, "plan": 250, "cluster": 250}

# Each was once a crash, or a warning before a refusal.
ONCE_WRONG = [("saved_model", 96), ("saved_model", 379)]


def check(folder: pathlib.Path, inputs: list[tuple[str, int]]) -> None:
    outcome = campaign(inputs, folder)
    print(f"seeds {min(s for _, s in inputs)} to {max(s for _, s in inputs)}: {dict(outcome.counts)}")
    assert outcome.failures == [], "\n".join(outcome.failures)
    for kind in {kind for kind, _ in inputs}:
        assert outcome.counts[kind, 0] and outcome.counts[kind, 2], f"{kind}: harmless alone, or refused"


@pytest.mark.medium
def test_a_sample_and_what_was_once_wrong(tmp_path):
    # Together, for one process.
    sample = [(kind, seed) for kind, count in SAMPLE.items() for seed in range(count)]
    check(tmp_path, [*ONCE_WRONG, *sample])


@pytest.mark.slow
def test_all(tmp_path):
    check(tmp_path, [(kind, seed) for kind, count in ALL.items() for seed in range(SAMPLE[kind], count)])
