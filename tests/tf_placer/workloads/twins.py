"""What is asked of the small twin of every family of workloads."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tf_placer.graph.item import Item
from tf_placer.workloads.spec import Workload, WorkloadSpec

_LOOPS = {"StatelessWhile", "While"}


def built(rows: Sequence[WorkloadSpec], name: str) -> Workload:
    """The workload of a row."""
    (row,) = (row for row in rows if row.name == name)
    return row.build(**row.settings)


def check_rows(rows: Sequence[WorkloadSpec], *names: str) -> None:
    """Each has its forward pass and a small twin, and no two rows have one name."""
    ends = ("", "_forward", "_small", "_small_forward")
    assert sorted(row.name for row in rows) == sorted(f"{name}{end}" for name in names for end in ends)


def check_training(rows: Sequence[WorkloadSpec], name: str, steps: int = 5) -> Item:
    """Training lowers the loss; every stage has gradients. Returns the traced step."""
    workload = built(rows, name)
    losses = [float(workload.function(*workload.example_args)) for _ in range(steps)]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    item = Item.from_function(workload.function, *workload.example_args, name=name)
    backward = [op for op in item.index.names if op.startswith("gradient_tape/")]
    _firsts(workload.stages, backward)
    return item


def check_forward(rows: Sequence[WorkloadSpec], name: str) -> Item:
    """The forward pass of a row changes nothing, and meets the stages in their order. Returns it."""
    workload = built(rows, f"{name}_forward")
    item = Item.from_function(workload.function, *workload.example_args, name=name)
    types = set(item.index.op_types)
    assert not [kind for kind in types if "Assign" in kind or "Apply" in kind]
    assert not types & _LOOPS
    assert not [op for op in item.index.names if "gradient" in op]
    forward = [op for op in item.index.names if op.startswith(("functional", "resnet", "sparse"))]
    assert _firsts(workload.stages, forward) == sorted(_firsts(workload.stages, forward))
    return item


def _firsts(stages: Sequence[str], names: Sequence[str]) -> list[int]:
    """Where each stage has its first op, by the first expression that is found in a name."""
    stage_of = [next((s for s, found in enumerate(stages) if re.search(found, n)), None) for n in names]
    assert set(range(len(stages))) <= set(stage_of), "a stage has no op"
    return [stage_of.index(stage) for stage in range(len(stages))]
