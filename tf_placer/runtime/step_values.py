"""What a step computes, as it is and placed: the same bits, or what is different."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.runtime.graph_program import build_program
from tf_placer.runtime.session import open_program

_SCOPE = "tf_placer_values"

Values = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference of two steps.

    Attributes:
      relative: of the value in which it is largest, to the largest number there; 0 where all bits are the same, and
        infinite where what is no number differs.
      value: an output or a variable; empty where all bits are the same.
    """

    relative: float = 0.0
    value: str = ""


@dataclasses.dataclass(frozen=True)
class SameValues:
    """A step as it is beside the same one placed, both from the same inputs and variables.

    Attributes:
      repeated: of the step as it is to itself, with Grappler and oneDNN off: one that draws random numbers differs.
      exact: of the placed step to it, with Grappler and oneDNN off.
      as_run: the same with both as this process has them. TensorFlow then rewrites and fuses ops within a device, so
        what it makes of a step depends on where its ops are, and so do the last bits.
    """

    repeated: Difference
    exact: Difference
    as_run: Difference

    @property
    def is_wrong(self) -> bool:
        """The placed step computes something else, which no rewriting by TensorFlow explains."""
        return not self.repeated.value and bool(self.exact.value)

    def summary(self) -> str:
        """One line."""
        if self.repeated.value:
            return (
                f"no two steps are alike ({self.repeated.value} differs), as where random numbers are drawn, so values "
                "cannot be compared"
            )
        as_run = "the same" if not self.as_run.value else f"{_shown(self.as_run)} apart"
        if self.is_wrong:
            return f"DIFFERENT VALUES with Grappler and oneDNN off: {_shown(self.exact)}; with them, {as_run}"
        return f"the same bits with Grappler and oneDNN off; as this process has them, {as_run}"


def _shown(difference: Difference) -> str:
    return f"{difference.relative:.1e} of the largest number in {difference.value}"


def step_values(
    target: str,
    item: Item,
    graph_def: tf.compat.v1.GraphDef,
    deadline_s: float,
    config_of: Callable[[float], tf.compat.v1.ConfigProto],
) -> Values:
    """Runs one step of a program: output or variable -> its value after that.

    Args:
      target: of the workers.
      item: the program; its inputs and variables are where a step begins.
      graph_def: its graph, placed or not.
      deadline_s: most seconds for one call to the session.
      config_of: the session's configuration for such a deadline.

    Raises:
      InputError: as ``build_program``; or it has no value that could be compared.
    """
    program = build_program(item, graph_def, is_call=True)
    device_of = {node.name: node.device for node in graph_def.node}
    reads = {}
    for i, variable in enumerate(item.variables):
        read = program.graph_def.node.add(
            name=f"{_SCOPE}/{i}", op="ReadVariableOp", device=device_of[variable.node]
        )
        read.input.append(variable.node)
        read.attr["dtype"].type = variable.dtype.as_datatype_enum
        reads[f"variable {variable.node!r}"] = f"{read.name}:0"
    if not reads and not program.fetches:
        raise InputError(
            f"{item.name!r} gives back nothing and has no variable, so there is nothing to compare"
        )
    with open_program(target, program, deadline_s, config_of) as loaded:
        outputs = loaded.outputs()
        return {
            f"output {name!r}": value for name, value in zip(program.fetches, outputs, strict=True)
        } | dict(zip(reads, loaded.read(list(reads.values())), strict=True))


def difference(one: Values, other: Values) -> Difference:
    """The largest difference of the same values of two steps."""
    found = [Difference(_relative(one[name], other[name]), name) for name in one]
    return max(
        (each for each in found if each.relative > 0), key=lambda each: each.relative, default=Difference()
    )


def _relative(one: np.ndarray, other: np.ndarray) -> float:
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if one.dtype == object:  # texts, of which the bytes here are pointers
        return 0.0 if np.array_equal(one, other) else float("inf")
    if one.tobytes() == other.tobytes():
        return 0.0
    if one.dtype == bool:
        return float("inf")
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    first, second = one.astype(wide), other.astype(wide)
    finite = np.isfinite(first)
    if (finite != np.isfinite(second)).any():
        return float("inf")
    largest = float(np.abs(first[finite]).max(initial=0.0))
    apart = float(np.abs(first[finite] - second[finite]).max(initial=0.0))
    # Bits may differ where numbers do not, in the sign of a zero: that counts as the least there is.
    return max(apart / largest if largest else float(apart > 0), float(np.finfo(np.float64).tiny))
