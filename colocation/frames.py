"""Frames of v1 loops: which loop each op is in."""

from __future__ import annotations

import collections
import dataclasses

from colocation.graph_index import GraphIndex
from colocation.op_facts import ENTERS, EXITS


@dataclasses.dataclass(frozen=True)
class Frames:
    """The frames of a graph; frame 0 is the graph itself, and parents come before their children.

    Attributes:
      frame_of_op: [N]; -1 for an op on a cycle that nothing enters.
      enter_of_frame: [F] the first ``Enter`` op of each frame; -1 of frame 0.
      parent_of_frame: [F] the frame around each; 0 of frame 0.
    """

    frame_of_op: list[int]
    enter_of_frame: list[int]
    parent_of_frame: list[int]


def outermost_loops(index: GraphIndex) -> list[int]:
    """Finds for each op the outermost v1 loop around it.

    Returns:
      [N]: an ``Enter`` op that stands for the loop, or -1 outside of loops.
    """
    frames = find_frames(index)
    outermost = list(frames.enter_of_frame)
    for frame, parent in enumerate(frames.parent_of_frame):
        if parent:
            outermost[frame] = outermost[parent]
    # Only a cycle that nothing enters is never reached (frame -1); it is in no loop.
    return [outermost[max(frame, 0)] for frame in frames.frame_of_op]


def find_frames(index: GraphIndex) -> Frames:
    """Finds the frame of each op, in one breadth-first pass.

    ``Enter`` opens a frame (one per parent frame and ``frame_name``) and belongs to it, so does
    ``Exit``, whose output is outside. An op is in the frame of its inputs.
    """
    if not ENTERS.intersection(index.op_types):
        return Frames([0] * index.num_ops, [-1], [0])
    frame_of_op = [-1] * index.num_ops
    enter_of_frame, parent_of_frame = [-1], [0]
    frame_of_key: dict[tuple[int, bytes], int] = {}
    queue: collections.deque[int] = collections.deque()

    def visit(op: int, frame: int) -> None:
        if index.op_types[op] in ENTERS:
            key = (frame, index.graph_def.node[op].attr["frame_name"].s)
            if key not in frame_of_key:
                frame_of_key[key] = len(enter_of_frame)
                enter_of_frame.append(op)
                parent_of_frame.append(frame)
            frame = frame_of_key[key]
        frame_of_op[op] = frame
        queue.append(op)

    for op, node in enumerate(index.graph_def.node):
        if not node.input:
            visit(op, 0)
    while queue:
        op = queue.popleft()
        frame = frame_of_op[op]
        outside = parent_of_frame[frame] if index.op_types[op] in EXITS else frame
        for successor in index.consumers[op]:
            if frame_of_op[successor] < 0:
                visit(successor, outside)
    return Frames(frame_of_op, enter_of_frame, parent_of_frame)
