"""Shrinking finds the least that fails, and never a program that means something else."""

import numpy as np

from tests.equivalence.programs import Block, Program, Signature, Step, all_steps, random_program, to_text
from tests.equivalence.shrinking import smaller_programs, smallest_program, smallest_row

SIGNATURES = {
    "negate": Signature("m", "m"),
    "sum": Signature("m", "s"),
    "scale": Signature("ms", "m"),
    "branch": Signature("mf", "m", blocks=2),
}
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
            assert ("mvsift" + "".join(SIGNATURES[s.operation].gives for s in block.steps))[
                block.result
            ] == "m"
        kinds += signature.gives


def test_the_one_step_that_fails_is_left():
    inner = Block((Step("negate", (0,)), Step("sum", (6,)), Step("scale", (6, 7))), 8)
    steps = (
        Step("negate", (0,)),
        Step("sum", (6,)),
        Step("branch", (6, 4), blocks=(inner, Block((), 0))),
        Step("scale", (8, 7)),
    )
    program = Program(0, steps, (9, 8))

    def fails(candidate: Program) -> bool:
        return any(
            step.operation == "scale" and step.inputs[0] != step.inputs[1] for step in _inside(candidate)
        )

    small = smallest_program(program, fails, SIGNATURES)
    assert small.outputs == ()
    assert [step.operation for step in all_steps(small.steps)] == ["branch", "scale"]
    assert small.steps[0].blocks[0] == Block((Step("scale", (0, 2)),), 6)


def _inside(program: Program) -> list[Step]:
    """Steps within blocks."""
    return [inner for step in program.steps for block in step.blocks for inner in all_steps(block.steps)]


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
