"""Tests scopes of ops and variables, by names as TensorFlow and Keras make them, and the layers called by them."""

import numpy as np
import pytest

from tf_placer.problem.layers import (
    below,
    layer_names,
    layer_of_neighbours,
    scopes_of,
    variable_scopes,
    without_count,
)

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
    names = ("dense", "dense_1", "dense_1_2", "dense_x", "conv2d")
    assert [*map(without_count, names)] == ["dense", "dense", "dense_1", "dense_x", "conv2d"]


def found(*ops: tuple[str, str]):
    """Of (name, scope) of a variable and its readers, one after the other."""
    scopes = [tuple(scope.split("/")) if scope else () for _, scope in ops]
    return variable_scopes({0: list(range(1, len(ops)))}, scopes, [name for name, _ in ops])


def test_the_layer_of_a_variable_is_called_as_its_scope() -> None:
    result = found(("m/norm/gamma", "m/norm"), ("r", "adam"), ("r", "m_1/norm_1/inner"))
    assert result.home == {0: ("m_1", "norm_1")}
    assert result.named_by == {("m_1", "norm_1"): ("m", "norm")}


@pytest.mark.parametrize(
    ("ops", "home"),
    [
        ([("w", ""), ("r", ""), ("r", "tower"), ("r", "adam")], ("tower",)),  # where it is read first
        ([("loss/total", "loss"), ("r", "")], ("loss",)),  # nothing with a scope reads it
        ([("w", "")], ()),
    ],
)
def test_a_variable_whose_scope_no_reader_has(ops: list[tuple[str, str]], home: tuple[str, ...]) -> None:
    assert found(*ops).home == {0: home}


def test_several_variables_of_one_name_are_of_the_layers_that_read_them() -> None:
    names = ["net/kernel", "net/kernel_1", "r", "r"]
    scopes = [("net",), ("net",), ("net_1", "dense_1"), ("net_1", "dense_1_2")]
    result = variable_scopes({0: [2], 1: [3]}, scopes, names)
    assert result.home == {0: ("net_1", "dense_1"), 1: ("net_1", "dense_1_2")}
    assert layer_names([("net_1",), *result.home.values()], result.named_by) == {
        (): (),
        ("net_1",): ("net",),
        ("net_1", "dense_1"): ("net", "dense"),
        ("net_1", "dense_1_2"): ("net", "dense_1"),
    }


def test_a_layer_that_is_called_twice_is_one() -> None:
    layers = [("f",), ("f", "dense_1"), ("f", "dense_3")]
    names = layer_names(layers, {("f", "dense_1"): ("dense",), ("f", "dense_3"): ("dense",)})
    assert names[layers[1]] == names[layers[2]] == ("f", "dense")


def test_layers_of_a_program_that_nothing_counted_keep_their_names() -> None:
    layers = [("block_1",), ("block_2",), ("block_1", "dense_1")]
    names = layer_names(layers, {("block_1", "dense_1"): ("block_1", "dense_1")})
    assert names == {(): ()} | {layer: layer for layer in layers}


def test_siblings_that_would_be_called_the_same_keep_their_names() -> None:
    layers = [("f",), ("f", "dense_1"), ("f", "einsum"), ("f", "einsum_1"), ("f", "add_1")]
    names = layer_names(layers, {("f", "dense_1"): ("dense",)})
    assert [names[layer][-1] for layer in layers] == ["f", "dense", "einsum", "einsum_1", "add"]


def test_scopes_around_a_counted_layer_keep_the_name_that_its_variables_say() -> None:
    names = layer_names(
        [("tower_1",), ("tower_1", "dense_1")], {("tower_1", "dense_1"): ("tower_1", "dense")}
    )
    assert names[("tower_1", "dense_1")] == ("tower_1", "dense")


A, B, NONE = ("a",), ("b",), ()


@pytest.mark.parametrize(
    ("given", "edges", "expected"),
    [
        ([A, NONE, NONE, B], [(0, 1), (1, 2), (2, 3)], [A, A, A, B]),  # of all that it reads
        ([A, B, NONE, NONE, A], [(0, 2), (1, 2), (2, 3), (3, 4)], [A, B, A, A, A]),  # else of what it feeds
        ([NONE, A, NONE], [(0, 2), (1, 2)], [A, A, A]),  # a constant disagrees with nothing
        ([A, B, NONE, A, B], [(0, 2), (1, 2), (2, 3), (2, 4)], [A, B, NONE, A, B]),  # all disagree
        ([NONE], [], [NONE]),
    ],
)
def test_layers_of_neighbours(given, edges, expected) -> None:
    pairs = np.array(edges, np.int32).reshape(-1, 2)
    assert layer_of_neighbours(given, pairs[:, 0], pairs[:, 1]) == expected
