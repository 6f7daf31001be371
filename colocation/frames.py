"""Which v1 loop each op is in."""

from __future__ import annotations

import collections

import numpy as np

from colocation.graph_index import GraphIndex

_ENTER_TYPES = frozenset({"Enter", "RefEnter"})
_EXIT_TYPES = frozenset({"Exit", "RefExit"})


def outermost_loops(index: GraphIndex) -> list[int]:
    """Finds for each op the outermost v1 loop around it, in one breadth-first pass.

    ``Enter`` opens a frame (one per parent frame and ``frame_name``) and belongs to it, so does
    ``Exit``, whose output is outside. An op is in the frame of its inputs.

    Returns:
      [N]: an ``Enter`` op that stands for the loop, or -1 outside of loops.
    """
    if not _ENTER_TYPES.intersection(index.op_types):
        return [-1] * index.num_ops
    frame_of_op, enter_of_frame, parent_of_frame = _frames(index)
    outermost = list(enter_of_frame)
    for frame, parent in enumerate(parent_of_frame):
        if parent:  # parents come before their children
            outermost[frame] = outermost[parent]
    # Only a cycle that nothing enters is never reached (frame -1); it is in no loop.
    return [outermost[max(frame, 0)] for frame in frame_of_op]


def _frames(index: GraphIndex) -> tuple[list[int], list[int], list[int]]:
    """Returns the frame of each op [N], and of each frame its first Enter and its parent frame.

    Frame 0 is the graph itself; its "Enter" is -1.
    """
    successors = _successors(index)
    frame_of_op = [-1] * index.num_ops
    enter_of_frame, parent_of_frame = [-1], [0]
    frame_of_key: dict[tuple[int, bytes], int] = {}
    queue: collections.deque[int] = collections.deque()

    def visit(op: int, frame: int) -> None:
        if index.op_types[op] in _ENTER_TYPES:
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
        outside = parent_of_frame[frame] if index.op_types[op] in _EXIT_TYPES else frame
        for successor in successors[op]:
            if frame_of_op[successor] < 0:
                visit(successor, outside)
    return frame_of_op, enter_of_frame, parent_of_frame


def _successors(index: GraphIndex) -> list[list[int]]:
    """Consumers of each op, data before control: [N] lists of op ids."""
    successors: list[list[int]] = [[] for _ in range(index.num_ops)]
    edges = np.concatenate([index.data_edges[:, [0, 2]], index.control_edges])
    for producer, consumer in edges.tolist():
        successors[producer].append(consumer)
    return successors
