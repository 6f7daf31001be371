"""Tests the scopes that names of ops say, by names as TensorFlow and Keras make them."""

import pytest

from tf_placer.problem.layers import below, scopes_of, without_count

FORWARD = ["a/dense/MatMul", "a/dense/kernel", "a/dense/MatMul/ReadVariableOp", "top"]


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("a/dense/MatMul", ("a", "dense")),
        ("a/dense/kernel/read/Read/ReadVariableOp", ("a", "dense")),
        ("gradient_tape/a/dense/MatMul/MatMul_1", ("a", "dense")),
        ("gradients/a/dense/MatMul_grad/Shape", ("a", "dense")),
        ("gradients_1/gradient_tape/a/dense/MatMul_grad/Shape", ("a", "dense")),
        ("StatefulPartitionedCall_2/PartitionedCall/a/dense/Shape", ("a", "dense")),
        ("a/dense/IdentityN/3", ("a", "dense")),
        ("gradients/AddN_4", ()),
        ("grad_ys_0/Const", ()),
        ("top", ()),
        ("top/copy", ()),
        ("a/while_2/body/x", ("a", "while_2", "body")),
        ("a.b+c/[x]/y", ("a.b+c", "[x]")),
    ],
)
def test_scope_is_what_the_program_named(name: str, scope: tuple[str, ...]) -> None:
    names = [*FORWARD, name]
    assert scopes_of(names, ["MatMul", "VarHandleOp", "ReadVariableOp", "NoOp", "IdentityN"])[-1] == scope


def test_an_op_of_the_gradient_alone_is_no_scope() -> None:
    names = ["gradient_tape/a/concat", "gradient_tape/a/concat/axis", "a/MatMul"]
    assert scopes_of(names, ["", "", ""]) == [("a",), ("a",), ("a",)]


def test_below() -> None:
    assert below([("a", "b", "c"), ("d",)]) == {("a",), ("a", "b")}


def test_count() -> None:
    assert [without_count(part) for part in ("dense", "dense_1", "dense_1_2", "dense_x", "conv2d")] == [
        "dense",
        "dense",
        "dense_1",
        "dense_x",
        "conv2d",
    ]
