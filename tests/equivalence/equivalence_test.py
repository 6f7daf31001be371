"""Random programs compute the same bits wherever their ops are put.

EQUIVALENCE_SEED (default 0) is the first seed, so that other programs can be tried. A failure says how to replay it.
"""

import concurrent.futures
import os
from collections.abc import Iterator

import pytest

from tests.logical_devices import outcomes_of

FIRST_SEED = int(os.environ.get("EQUIVALENCE_SEED", "0"))
PLACEMENTS = 6
FEWER_PLACEMENTS = 2  # in the quick suite: each way in which a pair is checked once
CHUNK_PROGRAMS = 50  # a process grows with every function that it traces
PROCESSES = 2


def check(first_seed: int, placements: int = PLACEMENTS) -> dict:
    """The report on the programs of a chunk of seeds."""
    return outcomes_of(
        "tests.equivalence.equivalence_process",
        f"--first_seed={first_seed}",
        f"--programs={CHUNK_PROGRAMS}",
        f"--placements={placements}",
        timeout_s=1200,
    )


def failures(report: dict) -> str:
    """What failed, the smallest program that fails, and the command that replays it."""
    return "\n\n".join(
        "\n".join(
            [
                f"seed {failure['seed']}; to replay: python -m tests.equivalence.equivalence_process "
                f"--first_seed={failure['seed']} --programs=1 --placements={PLACEMENTS}",
                *failure["complaints"],
                failure.get("smallest", failure["program"]),
            ]
        )
        for failure in report["failures"]
    )


@pytest.fixture(scope="module")
def report() -> dict:
    """The report on 50 programs with 2 placements each."""
    return check(FIRST_SEED, FEWER_PLACEMENTS)


def test_100_pairs_agree(report):
    assert not report["failures"], failures(report)
    assert report["pairs"] == FEWER_PLACEMENTS * CHUNK_PROGRAMS


def test_the_programs_are_diverse(report):
    op_types = report["op_types"]
    print(f"{len(op_types)} op types in {report['programs']} programs")
    assert len(op_types) >= 100, sorted(op_types)
    wanted = {"AssignVariableOp", "Case", "Conv2D", "If", "ResourceApplyAdam", "ResourceScatterUpdate"}
    wanted |= {"TensorListStack", "While"}
    assert wanted <= op_types.keys(), sorted(wanted - op_types.keys())


def test_placements_use_several_devices(report):
    assert report["on_several_devices"] >= 0.9 * report["pairs"]


@pytest.mark.equivalence
def test_10000_pairs_agree(capsys):
    seeds = [
        FIRST_SEED + chunk * CHUNK_PROGRAMS for chunk in range(10_000 // (PLACEMENTS * CHUNK_PROGRAMS) + 1)
    ]
    pairs, failed = 0, []
    for done, found in enumerate(_reports(seeds), start=1):
        pairs += found["pairs"]
        failed += [failures(found)] if found["failures"] else []
        with capsys.disabled():
            print(
                f"{done} of {len(seeds)} chunks, {pairs} pairs, {len(failed)} chunks with failures",
                flush=True,
            )
    assert not failed, "\n\n".join(failed)
    assert pairs >= 9_500


def _reports(seeds: list[int]) -> Iterator[dict]:
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as executor:
        futures = [executor.submit(check, seed) for seed in seeds]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()
