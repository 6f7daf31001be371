"""Plans against partition graphs written by hand: in place, absent for a reason, or an error."""

import pytest
import tensorflow as tf

from tf_placer.runtime.audit import AuditError, Reason, audit
from tf_placer.runtime.graph_program import GraphProgram

A, B = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))


def graph(*nodes):
    """A graph of (name, type, device, inputs...)."""
    graph_def = tf.compat.v1.GraphDef()
    for name, kind, device, *inputs in nodes:
        graph_def.node.add(name=name, op=kind, device=device, input=inputs)
    return graph_def


PROGRAM = GraphProgram(
    graph(
        ("x", "Const", A),
        ("unused", "Const", B),
        ("loop", "While", A, "x"),
        ("y", "Neg", B, "loop"),
        ("step", "NoOp", B, "^y"),
    ),
    (),
    ("step",),
)
ON_A = [("x", "Const", A), ("loop/enter", "Enter", A, "x"), ("loop/exit", "Exit", A), ("y/_1", "_Send", A)]
ON_B = [("y/_2", "_Recv", B), ("y", "Neg", B, "y/_2"), ("step", "NoOp", B, "^y")]


def test_everything_in_place_or_absent_for_a_reason():
    found = audit(PROGRAM, [graph(*ON_A), graph(*ON_B)])
    found.check()
    assert found.in_place == 3
    assert found.absent == {"unused": Reason.PRUNED, "loop": Reason.LOWERED}
    assert found.added == {"Enter": 1, "Exit": 1, "_Send": 1, "_Recv": 1}
    assert found.summary() == "3 ops where they were put, 1 lowered, 1 pruned"


@pytest.mark.parametrize(
    ("on_a", "on_b", "message"),
    [
        (ON_A, [("y", "Neg", A), *ON_B[2:]], "'y' is planned for .*task:1.* and runs on .*task:0"),
        ([*ON_A, ("y", "Neg", A)], ON_B, "'y' is planned for .*runs on .*task:0.*task:1"),
        (ON_A, ON_B[2:], "'y' .* does not run, though the step needs it"),
        ([("x", "Const", A)], ON_B, "'loop' .* does not run"),
        ([("x", "Const", A)], [("loop/enter", "Enter", B), *ON_B], "'loop' .* does not run"),
    ],
)
def test_whatever_else_is_an_error(on_a, on_b, message):
    found = audit(PROGRAM, [graph(*on_a), graph(*on_b)])
    with pytest.raises(AuditError, match=message):
        found.check()
    assert "UNEXPLAINED" in found.summary()


# A convolution with a bias, and the gradients of both, of which each pair may become one op.
WITH_BIAS = GraphProgram(
    graph(
        ("x", "Const", A),
        ("conv", "Conv2D", A, "x"),
        ("biased", "BiasAdd", A, "conv"),
        ("upstream", "Neg", A, "biased"),
        ("conv_grad", "Conv2DBackpropFilter", A, "x", "upstream"),
        ("bias_grad", "BiasAddGrad", A, "upstream"),
        ("step", "NoOp", A, "^conv_grad", "^bias_grad"),
    ),
    (),
    ("step",),
)


def fused(forward, backward, device=A):
    """What runs of it: the two pairs under the name of one of each."""
    return graph(
        ("x", "Const", A),
        ("biased", forward, device, "x"),
        ("upstream", "Neg", A, "biased"),
        ("conv_grad", backward, A, "x", "upstream"),
        ("step", "NoOp", A, "^conv_grad"),
    )


def test_what_the_runtime_fuses_runs_within_its_neighbour():
    found = audit(WITH_BIAS, [fused("_FusedConv2D", "_MklNativeConv2DBackpropFilterWithBias")])
    found.check()
    assert found.absent == {"conv": Reason.FUSED, "bias_grad": Reason.FUSED}


@pytest.mark.parametrize(
    ("graph_def", "name"),
    [
        (fused("BiasAdd", "_MklNativeConv2DBackpropFilterWithBias"), "conv"),
        (fused("_FusedConv2D", "Conv2DBackpropFilter"), "bias_grad"),
        (fused("_FusedConv2D", "_MklNativeConv2DBackpropFilterWithBias", device=B), "conv"),
    ],
)
def test_what_is_missing_beside_plain_or_distant_ops_is_an_error(graph_def, name):
    assert name in audit(WITH_BIAS, [graph_def]).unexplained


def test_a_small_constant_is_copied_to_each_device_that_reads_it():
    program = GraphProgram(
        graph(("x", "Const", A), ("a", "Neg", A, "x"), ("b", "Neg", B, "x"), ("step", "NoOp", B, "^a", "^b")),
        (),
        ("step",),
    )
    on_a = [("x/replicate/_0", "Const", A), ("a", "Neg", A, "x/replicate/_0")]
    on_b = [("x/replicate/_1", "Const", B), ("b", "Neg", B, "x/replicate/_1"), ("step", "NoOp", B, "^b")]
    found = audit(program, [graph(*on_a), graph(*on_b)])
    found.check()
    assert found.absent == {"x": Reason.REPLICATED}
    without = [("b", "Neg", B), ("step", "NoOp", B, "^b")]
    with pytest.raises(AuditError, match=r"'x' .* does not run, though the step needs it"):
        audit(program, [graph(*on_a[1:]), graph(*without)]).check()
