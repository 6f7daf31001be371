"""Makes a failing pair small: fewer outputs and steps, then fewer units away from the first device."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from tests.equivalence.programs import KINDS, Block, Program, Signature, Step

MAX_ATTEMPTS = 300


def smallest_program(
    program: Program, fails: Callable[[Program], bool], signatures: dict[str, Signature]
) -> Program:
    """Leaves out what is not needed for a failure, until nothing more can be left out."""
    attempts = 0
    shrunk = True
    while shrunk:
        shrunk = False
        for candidate in smaller_programs(program, signatures):
            attempts += 1
            if attempts > MAX_ATTEMPTS:
                return program
            if fails(candidate):
                program, shrunk = candidate, True
                break
    return program


def smaller_programs(program: Program, signatures: dict[str, Signature]) -> Iterator[Program]:
    """Yields the programs with one step less, with one step less in a block, and with one output less."""
    for steps, removed in _with_one_less(program.steps, signatures):
        outputs = program.outputs
        if removed is not None:
            outputs = tuple(k - (k > removed) for k in outputs if k != removed)
        yield dataclasses.replace(program, steps=steps, outputs=outputs)
    for output in program.outputs:
        yield dataclasses.replace(program, outputs=tuple(k for k in program.outputs if k != output))


def smallest_row(row: np.ndarray, fails: Callable[[np.ndarray], bool]) -> np.ndarray:
    """Moves units back to the first device, halves first, as long as the pair still fails."""
    row = row.copy()
    size = max(1, np.count_nonzero(row) // 2)
    while True:
        moved = np.flatnonzero(row)
        for start in range(0, len(moved), size):
            candidate = row.copy()
            candidate[moved[start : start + size]] = 0
            if fails(candidate):
                row = candidate
        if size == 1:
            return row
        size //= 2


def _with_one_less(
    steps: tuple[Step, ...], signatures: dict[str, Signature]
) -> Iterator[tuple[tuple[Step, ...], int | None]]:
    """Yields steps of which one is left out, with the value that is gone, or one has a smaller block, with None."""
    for position in reversed(range(len(steps))):
        yield _without(steps, position, signatures), len(KINDS) + position
    for position, step in enumerate(steps):
        for k, block in enumerate(step.blocks):
            for inner, removed in _with_one_less(block.steps, signatures):
                result = block.result
                if removed is not None:
                    result = 0 if result == removed else result - (result > removed)
                blocks = (*step.blocks[:k], Block(inner, result), *step.blocks[k + 1 :])
                smaller = dataclasses.replace(step, blocks=blocks)
                yield (*steps[:position], smaller, *steps[position + 1 :]), None


def _without(steps: tuple[Step, ...], position: int, signatures: dict[str, Signature]) -> tuple[Step, ...]:
    """Leaves out a step; what read its value reads the argument of its kind."""
    removed = len(KINDS) + position
    argument = KINDS.index(signatures[steps[position].operation].gives)
    later = (
        dataclasses.replace(
            step, inputs=tuple(argument if k == removed else k - (k > removed) for k in step.inputs)
        )
        for step in steps[position + 1 :]
    )
    return (*steps[:position], *later)
