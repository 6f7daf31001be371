"""Random programs compute the same bits wherever their ops are put, and what fails is shrunk to the least that fails.

EQUIVALENCE_SEED (default 0) is the first seed, so that other programs can be tried. A failure says how to replay it.
"""

import concurrent.futures
import os
from collections.abc import Iterator

import numpy as np
import pytest

from tests.equivalence.programs import Block, Program, Signature, Step, all_steps, random_program, to_text
from tests.equivalence.shrinking import smaller_programs, smallest_program, smallest_row
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
    """What failed, the smallest program that fails, and the command that replays it."""
    lines = []
    for failure in report["failures"]:
        lines += [
            f"\nseed {failure['seed']}; to replay: python -m tests.equivalence.equivalence_process "
            f"--first_seed={failure['seed']} --programs=1 --placements={PLACEMENTS}"
        ]
        lines += [*failure["complaints"], failure.get("smallest", failure["program"])]
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


def test_every_step_of_a_drawn_or_smaller_program_reads_values_of_its_kinds():
    for seed in range(10):
        program = random_program(seed, SIGNATURES, FAMILIES)
        for one in [program, *smaller_programs(program, SIGNATURES)]:
            _check(one.steps)
            assert all(output < 6 + len(one.steps) for output in one.outputs)


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


def test_the_one_step_that_fails_is_left():
    inner = Block((Step("negate", (0,)), Step("sum", (6,)), Step("scale", (6, 7))), 8)
    branch = Step("branch", (6, 4), blocks=(inner, Block((), 0)))
    steps = Step("negate", (0,)), Step("sum", (6,)), branch, Step("scale", (8, 7))
    program = Program(0, steps, (9, 8))

    def fails(candidate: Program) -> bool:
        blocks = [block for step in candidate.steps for block in step.blocks]
        inside = (step for block in blocks for step in all_steps(block.steps))
        return any(step.operation == "scale" and step.inputs[0] != step.inputs[1] for step in inside)

    small = smallest_program(program, fails, SIGNATURES)
    assert small.outputs == ()
    assert [step.operation for step in all_steps(small.steps)] == ["branch", "scale"]
    assert small.steps[0].blocks[0] == Block((Step("scale", (0, 2)),), 6)


def test_only_the_units_that_matter_stay_away_from_the_first_device():
    row = np.random.default_rng(0).integers(1, 4, size=50)
    smallest = smallest_row(row, lambda one: bool(one[7] and one[31]))
    assert np.flatnonzero(smallest).tolist() == [7, 31]
    assert smallest[7] == row[7]


def test_a_program_prints_every_step_in_its_place():
    block = Block((Step("negate", (0,)),), 6)
    text = to_text(Program(5, (Step("branch", (0, 4), 3, (block, block)),), (6,), 2))
    assert text.splitlines() == [
        "program of seed 5: values 0 to 5 are its arguments (mvsift)",
        "  6 = branch(0, 4), number 3",
        *["    block that returns 6:", "      6 = negate(0), number 0"] * 2,
        "  returns [6] in form 2",
    ]
