"""How often the ops of TensorFlow 1 loops run, where the graph says so.

Such a loop counts: a ``Merge`` starts at a constant, what comes back to it is a constant more, and its condition
compares it with one. That is how ``tf.compat.v1.while_loop`` with ``maximum_iterations``, loops over a range and
recurrent networks are made, and the loops of their gradients, which count down from what the first has counted to.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from colocation.frames import find_frames
from colocation.graph_index import GraphIndex, data_inputs, parse_input
from tf_placer.costs.trip_count import Outputs, constant_scalar

_PASSES = frozenset({"Identity", "Enter", "Switch"})
_COMPARES = {"Less": "<", "LessEqual": "<=", "Greater": ">", "GreaterEqual": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclasses.dataclass(frozen=True)
class FrameTrips:
    """Runs of ops in a step.

    Attributes:
      runs: [N] float64, how often each op runs; 1 outside of loops. A loop of unknown count counts for one iteration.
      unknown: loops whose count the graph does not say.
    """

    runs: np.ndarray
    unknown: int


def frame_trips(index: GraphIndex, outputs: Outputs | None = None) -> FrameTrips:
    """Counts the runs of every op; arguments as ``trip_count``."""
    frames = find_frames(index)
    loops = _Loops(index, frames.frame_of_op, outputs)
    runs = np.ones(len(frames.enter_of_frame))
    unknown = 0
    for frame in range(1, len(runs)):
        count = loops.trips(frame)
        unknown += count is None
        runs[frame] = runs[frames.parent_of_frame[frame]] * (1 if count is None else count)
    return FrameTrips(runs[np.maximum(frames.frame_of_op, 0)], unknown)


class _Loops:
    def __init__(self, index: GraphIndex, frame_of_op: list[int], outputs: Outputs | None) -> None:
        self._index, self._frame_of_op, self._outputs = index, frame_of_op, outputs
        self._condition = {
            frame_of_op[op]: op for op, op_type in enumerate(index.op_types) if op_type == "LoopCond"
        }
        self._pushed: dict[int, str] = {}  # stack -> what is pushed there
        for op, op_type in enumerate(index.op_types):
            if op_type == "StackPushV2":
                handle, value = self._data(op)[:2]
                self._pushed[self._passed(handle)] = value

    @functools.cache  # noqa: B019 - lives as long as one call of frame_trips
    def trips(self, frame: int) -> int | None:
        """Iterations of a loop, or None."""
        return None if frame not in self._condition else self._least(self._data(self._condition[frame])[0])

    def _least(self, condition: str) -> int | None:
        """Iterations until a condition does not hold: of several that must, the first."""
        op = self._passed(condition)
        op_type = self._index.op_types[op]
        if op_type == "LogicalAnd":
            counts = [count for text in self._data(op) if (count := self._least(text)) is not None]
            return min(counts, default=None)
        if op_type not in _COMPARES:
            return None
        one, other = self._data(op)
        sign = _COMPARES[op_type]
        return (
            self._until(one, sign, other) if self._counter(one) else self._until(other, _MIRRORED[sign], one)
        )

    def _until(self, counter: str, sign: str, limit: str) -> int | None:
        found, end = self._counter(counter), self._value(limit)
        if found is None or end is None:
            return None
        start, step = found
        if sign in (">", ">="):
            start, step, end = -start, -step, -end
        if step <= 0:
            return None
        distance = end - start + (sign in ("<=", ">="))
        return max(0, -(-distance // step))

    def _counter(self, text: str) -> tuple[int, int] | None:
        """What a loop variable starts at and what an iteration adds, of one that counts."""
        merge = self._passed(text)
        if self._index.op_types[merge] != "Merge":
            return None
        inputs = self._data(merge)
        if len(inputs) != 2:
            return None
        enter, back = (self._op(one) for one in inputs)
        if self._index.op_types[back] != "NextIteration" or self._index.op_types[enter] != "Enter":
            return None
        added = self._passed(self._data(back)[0])
        op_type = self._index.op_types[added]
        if op_type not in ("Add", "AddV2", "Sub"):
            return None
        one, other = self._data(added)
        if self._passed(one) != merge:
            one, other = other, one
            if op_type == "Sub":
                return None
        start, step = self._value(inputs[0]), self._value(other)
        if self._passed(one) != merge or start is None or step is None:
            return None
        return start, -step if op_type == "Sub" else step

    def _value(self, text: str) -> int | None:
        """Value of a scalar: a constant, or what a loop has counted to when it ends."""
        op = self._passed(text)
        op_type = self._index.op_types[op]
        if op_type == "Exit":
            source = self._data(op)[0]
            counter, trips = self._counter(source), self.trips(self._frame_of_op[op])
            return None if counter is None or trips is None else counter[0] + counter[1] * trips
        if op_type == "StackPopV2":
            pushed = self._pushed.get(self._passed(self._data(op)[0]))
            return None if pushed is None else self._value(pushed)
        return constant_scalar(self._index, text, self._outputs)

    def _passed(self, text: str) -> int:
        """The op that a tensor comes from, through those that hand it on."""
        op = self._op(text)
        while self._index.op_types[op] in _PASSES:
            op = self._op(self._data(op)[0])
        return op

    def _op(self, text: str) -> int:
        return self._index.id_of_name[parse_input(text)[1]]

    def _data(self, op: int) -> list[str]:
        return data_inputs(self._index.graph_def.node[op])
