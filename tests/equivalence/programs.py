"""Random programs as data: steps that each name earlier values, so that one can be printed and rebuilt.

A value has a kind: ``m`` float32 [4, 4], ``v`` float32 [4], ``s`` float32 [], ``i`` int32 [4], ``f`` bool [], ``t``
string [4]. A program, and every block within one of its steps, takes one argument of each kind, which are its values 0
to 5; step k makes value 6 + k.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

KINDS = "mvsift"


@dataclasses.dataclass(frozen=True)
class Signature:
    """What an operation takes and gives."""

    takes: str  # kinds of its inputs
    gives: str  # kind of its value
    blocks: int = 0  # how many blocks of steps it runs


@dataclasses.dataclass(frozen=True)
class Block:
    """Steps of a branch, a loop's body or a nested function."""

    steps: tuple[Step, ...]
    result: int  # the value that it returns, of kind ``m``


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation on earlier values."""

    operation: str  # name in ``operations.OPERATIONS``.
    inputs: tuple[int, ...]  # the values that it takes
    number: int = 0  # what it varies: which variable, which seed, which axis
    blocks: tuple[Block, ...] = ()  # what it runs


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of one argument of each kind."""

    seed: int  # of the variables' values and arguments, and what it was drawn from
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]  # the values that it returns
    form: int = 0  # how it returns them, see ``building.structured``.


def random_program(seed: int, signatures: dict[str, Signature], families: Sequence[Sequence[str]]) -> Program:
    """Draws a program."""
    draw = _Draw(np.random.default_rng(seed), signatures, families)
    steps, kinds = draw.steps(int(draw.rng.integers(3, 8)), depth=0)
    used = {value for step in steps for value in step.inputs}
    unused = [value for value in range(len(KINDS), len(kinds)) if value not in used]
    seen_inside = draw.rng.choice(len(kinds), size=2).tolist()
    outputs = tuple(dict.fromkeys([*unused, *seen_inside]))
    if draw.rng.random() < 0.04:  # only side effects
        outputs = ()
    return Program(seed, steps, outputs, int(draw.rng.integers(4)))


class _Draw:
    def __init__(
        self, rng: np.random.Generator, signatures: dict[str, Signature], families: Sequence[Sequence[str]]
    ) -> None:
        self.rng = rng
        self._signatures = signatures
        self._families = families

    def steps(self, count: int, depth: int) -> tuple[tuple[Step, ...], str]:
        """Returns the steps, and the kind of each value of them and of the arguments."""
        steps: list[Step] = []
        kinds = KINDS
        for _ in range(count):
            step = self._step(kinds, depth)
            steps.append(step)
            kinds += self._signatures[step.operation].gives
        return tuple(steps), kinds

    def _step(self, kinds: str, depth: int) -> Step:
        while True:
            family = self._families[self.rng.integers(len(self._families))]
            name = family[self.rng.integers(len(family))]
            signature = self._signatures[name]
            if depth < 2 or not signature.blocks:
                break
        inputs = tuple(self._value(kinds, kind) for kind in signature.takes)
        blocks = tuple(self._block(depth + 1) for _ in range(signature.blocks))
        return Step(name, inputs, int(self.rng.integers(100)), blocks)

    def _value(self, kinds: str, kind: str) -> int:
        """A value of a kind, more often a recent one."""
        candidates = [value for value, found in enumerate(kinds) if found == kind]
        if self.rng.random() < 0.5:
            return candidates[-1]
        return candidates[self.rng.integers(len(candidates))]

    def _block(self, depth: int) -> Block:
        steps, kinds = self.steps(int(self.rng.integers(1, 3)), depth)
        return Block(steps, kinds.rindex("m"))


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Yields the steps and those of their blocks."""
    for step in steps:
        yield step
        for block in step.blocks:
            yield from all_steps(block.steps)


def to_text(program: Program) -> str:
    """The program, one step a line; the blocks of a step stand below it, indented."""
    lines = [f"program of seed {program.seed}: values 0 to {len(KINDS) - 1} are its arguments ({KINDS})"]
    lines += _lines(program.steps, "  ")
    lines.append(f"  returns {list(program.outputs)} in form {program.form}")
    return "\n".join(lines)


def _lines(steps: Sequence[Step], indent: str) -> Iterator[str]:
    for position, step in enumerate(steps):
        inputs = ", ".join(map(str, step.inputs))
        yield f"{indent}{len(KINDS) + position} = {step.operation}({inputs}), number {step.number}"
        for block in step.blocks:
            yield f"{indent}  block that returns {block.result}:"
            yield from _lines(block.steps, indent + "    ")
