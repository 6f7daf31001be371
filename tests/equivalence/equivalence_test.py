"""Random programs compute the same bits wherever their ops are put.

EQUIVALENCE_SEED (default 0) is the first seed, so that other programs can be tried. A failure says how to replay it.
"""

import concurrent.futures
import os
from collections.abc import Iterator

import pytest

from tests.equivalence.programs import Block, Program, Signature, Step, random_program, to_text
from tests.logical_devices import outcomes_of

FIRST_SEED = int(os.environ.get("EQUIVALENCE_SEED", "0"))
PLACEMENTS = 6
FEWER_PLACEMENTS = 2  # in the quick suite: each way in which a pair is checked once
CHUNK_PROGRAMS = 50  # a process grows with every function that it traces
PROCESSES = 2


def check(first_seed: int, placements: int = PLACEMENTS) -> dict:
    """The report on the programs of a chunk of seeds."""
    flags = f"--first_seed={first_seed}", f"--programs={CHUNK_PROGRAMS}", f"--placements={placements}"
    return outcomes_of("tests.equivalence.equivalence_process", *flags, timeout_s=1200)


def failures(report: dict) -> str:
    """What failed, the program, and the command that replays it."""
    lines = []
    for failure in report["failures"]:
        lines += [
            f"\nseed {failure['seed']}; to replay: python -m tests.equivalence.equivalence_process "
            f"--first_seed={failure['seed']} --programs=1 --placements={PLACEMENTS}"
        ]
        lines += [*failure["complaints"], failure["program"]]
    return "\n".join(lines)


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
    chunks = 10_000 // (PLACEMENTS * CHUNK_PROGRAMS) + 1
    seeds = [FIRST_SEED + chunk * CHUNK_PROGRAMS for chunk in range(chunks)]
    pairs, failed = 0, []
    for done, found in enumerate(_reports(seeds), start=1):
        pairs += found["pairs"]
        failed += [failures(found)] if found["failures"] else []
        with capsys.disabled():
            print(f"{done} of {len(seeds)} chunks, {pairs} pairs, {len(failed)} with failures", flush=True)
    assert not failed, "\n\n".join(failed)
    assert pairs >= 9_500


def _reports(seeds: list[int]) -> Iterator[dict]:
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as executor:
        futures = [executor.submit(check, seed) for seed in seeds]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


SIGNATURES = {"negate": Signature("m", "m"), "sum": Signature("m", "s"), "scale": Signature("ms", "m")}
SIGNATURES |= {"branch": Signature("mf", "m", blocks=2)}
FAMILIES = (tuple(SIGNATURES),)


def test_a_seed_gives_the_same_program_and_others_give_others():
    programs = [random_program(seed, SIGNATURES, FAMILIES) for seed in range(20)]
    assert programs == [random_program(seed, SIGNATURES, FAMILIES) for seed in range(20)]
    assert len({to_text(program) for program in programs}) == 20


def test_every_step_of_a_drawn_program_reads_values_of_its_kinds():
    for seed in range(10):
        program = random_program(seed, SIGNATURES, FAMILIES)
        _check(program.steps)
        assert all(output < 6 + len(program.steps) for output in program.outputs)


def _check(steps: tuple[Step, ...]) -> None:
    kinds = "mvsift"
    for step in steps:
        signature = SIGNATURES[step.operation]
        assert "".join(kinds[k] for k in step.inputs) == signature.takes
        for block in step.blocks:
            _check(block.steps)
            inner = "mvsift" + "".join(SIGNATURES[s.operation].gives for s in block.steps)
            assert inner[block.result] == "m"
        kinds += signature.gives


def test_a_program_prints_every_step_in_its_place():
    block = Block((Step("negate", (0,)),), 6)
    text = to_text(Program(5, (Step("branch", (0, 4), 3, (block, block)),), (6,), 2))
    assert text.splitlines() == [
        "program of seed 5: values 0 to 5 are its arguments (mvsift)",
        "  6 = branch(0, 4), number 3",
        *["    block that returns 6:", "      6 = negate(0), number 0"] * 2,
        "  returns [6] in form 2",
    ]
