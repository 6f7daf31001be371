"""Families of workloads: rows, small twins that train and run forward, and how many ops follow from their layers."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from tf_placer.graph.item import Item
from tf_placer.workloads.attention import BERT, TRANSFORMER_XL
from tf_placer.workloads.convolutional import AMOEBANET, NASNET, RESNET, WAVENET
from tf_placer.workloads.spec import Workload, WorkloadSpec

Rows = Sequence[WorkloadSpec]
_LOOPS = {"StatelessWhile", "While"}


def built(rows: Sequence[WorkloadSpec], name: str) -> Workload:
    """The workload of a row."""
    (row,) = (row for row in rows if row.name == name)
    return row.build(**row.settings)


def _firsts(stages: Sequence[str], names: Sequence[str]) -> list[int]:
    """Where each stage has its first op, by the first expression that is found in a name."""
    stage_of = [next((s for s, found in enumerate(stages) if re.search(found, n)), None) for n in names]
    assert set(range(len(stages))) <= set(stage_of), "a stage has no op"
    return [stage_of.index(stage) for stage in range(len(stages))]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (BERT, ("bert_base", "bert_large")),
        (TRANSFORMER_XL, ("transformer_xl_2", "transformer_xl_4", "transformer_xl_8")),
        (RESNET, ("resnet_152",)),
        (AMOEBANET, ("amoebanet",)),
        (NASNET, ("nasnet",)),
        (WAVENET, ("wavenet_2x18", "wavenet_4x36")),
    ],
)
def test_each_has_its_forward_pass_and_a_small_twin(rows: Rows, names: tuple[str, ...]) -> None:
    ends = ("", "_forward", "_small", "_small_forward")
    assert sorted(row.name for row in rows) == sorted(f"{name}{end}" for name in names for end in ends)


@pytest.mark.parametrize(
    ("rows", "name", "steps", "counts"),
    [
        # One in each layer, and one in the head.
        pytest.param(BERT, "bert_base_small", 5, {"Erfc": 2 + 1}, marks=pytest.mark.medium),
        pytest.param(TRANSFORMER_XL, "transformer_xl_2_small", 5, {}, marks=pytest.mark.medium),
        # 1 + 16 blocks x 3 + 4 shortcuts; each has a gradient for its weights. Of 152 layers the first few steps make
        # it worse.
        pytest.param(
            RESNET, "resnet_152_small", 8, {"Conv2D": 53, "Conv2DBackpropFilter": 53}, marks=pytest.mark.slow
        ),
        # A separable operation has two depthwise convolutions. 3 normal cells of 4 and 4 reductions of 4 operations.
        pytest.param(
            AMOEBANET,
            "amoebanet_small",
            5,
            {"DepthwiseConv2dNative": 2 * (3 * 4 + 4 * 4)},
            marks=pytest.mark.slow,
        ),
        # The same of 5 operations each.
        pytest.param(
            NASNET, "nasnet_small", 5, {"DepthwiseConv2dNative": 2 * (3 * 5 + 4 * 5)}, marks=pytest.mark.slow
        ),
        pytest.param(WAVENET, "wavenet_2x18_small", 5, {}, marks=pytest.mark.slow),
    ],
)
def test_the_small_twin_trains_and_every_stage_has_gradients(
    rows: Rows, name: str, steps: int, counts: dict[str, int]
) -> None:
    workload = built(rows, name)
    losses = [float(workload.function(*workload.example_args)) for _ in range(steps)]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    item = Item.from_function(workload.function, *workload.example_args, name=name)
    _firsts(workload.stages, [op for op in item.index.names if op.startswith("gradient_tape/")])
    assert {op_type: item.index.op_types.count(op_type) for op_type in counts} == counts
    if rows is TRANSFORMER_XL:
        memories = [v for v in item.variables if v.node.endswith("/memory")]
        assert [v.value.shape for v in memories] == [(4, 16, 64)] * 2
        # Made after steps of training, which have filled it.
        assert all(np.abs(v.value).max() > 0 for v in memories)
    if rows is WAVENET:
        # Filter, gate, residual and skip of 2 x 4 layers, one before and two after; nothing reads the last residual.
        assert len([op for op in item.index.names if op.endswith("/convolution")]) == 4 * 2 * 4 + 3 - 1


@pytest.mark.parametrize(
    ("rows", "name", "counts"),
    [
        (BERT, "bert_large_small", {"Erfc": 4 + 1}),
        # A softmax for each layer's attention; that of the words is part of the loss.
        (TRANSFORMER_XL, "transformer_xl_4_small", {"Softmax": 4}),
        pytest.param(RESNET, "resnet_152_small", {"Conv2D": 53}, marks=pytest.mark.slow),
        # Four pools of 3 by 3 in a reduction and two in a normal cell are maxima or means; one maximum a normal cell,
        # three a reduction.
        pytest.param(AMOEBANET, "amoebanet_small", {"MaxPool": 3 * 1 + 4 * 3}, marks=pytest.mark.slow),
        pytest.param(NASNET, "nasnet_small", {}, marks=pytest.mark.slow),
        (WAVENET, "wavenet_4x36_small", {"Tanh": 4 * 4, "Sigmoid": 4 * 4}),
    ],
)
def test_the_forward_pass_changes_nothing_and_meets_the_stages_in_order(
    rows: Rows, name: str, counts: dict[str, int]
) -> None:
    workload = built(rows, f"{name}_forward")
    item = Item.from_function(workload.function, *workload.example_args, name=name)
    types = set(item.index.op_types)
    assert not [kind for kind in types if "Assign" in kind or "Apply" in kind]
    assert not types & _LOOPS
    assert not [op for op in item.index.names if "gradient" in op]
    forward = [op for op in item.index.names if op.startswith(("functional", "resnet", "sparse"))]
    assert _firsts(workload.stages, forward) == sorted(_firsts(workload.stages, forward))
    assert {op_type: item.index.op_types.count(op_type) for op_type in counts} == counts
    assert rows is not NASNET or "AvgPool" in types
