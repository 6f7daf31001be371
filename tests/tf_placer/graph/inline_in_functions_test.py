"""Calls inside branches and loops are inlined; what the functions compute and change stays."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from tf_placer.graph.clean import inline_in_functions
from tf_placer.graph.program import flat_tensor, nested_tensor
from tf_placer.graph.read_function import program_of_function


def ops_of_functions(program):
    """The types of the ops in every function that the main graph's ops name."""
    functions = {function.signature.name: function for function in program.graph_def.library.function}
    branches = [
        node.attr[key].func.name
        for node in program.graph_def.node
        for key in ("then_branch", "else_branch")
        if key in node.attr
    ]
    return {name: [node.op for node in functions[name].node_def] for name in branches}


def function_of(program, substring):
    return next(f for f in program.graph_def.library.function if substring in f.signature.name)


def test_results_and_nested_calls_of_a_branch():
    inner = tf.function(lambda x: (x * 2.0, tf.exp(x)))
    outer = tf.function(lambda x: inner(x)[0] + inner(x + 1.0)[1])
    step = tf.function(lambda x: tf.cond(x > 0.0, lambda: (x, outer(x)), lambda: (outer(x) - x, x)))
    program = program_of_function(step, tf.constant(1.0))
    before = program.graph_def.SerializeToString(deterministic=True)
    inlined = inline_in_functions(program)
    assert program.graph_def.SerializeToString(deterministic=True) == before
    ops = ops_of_functions(inlined)
    assert len(ops) == 2
    assert all(types.count("Exp") == 2 and "PartitionedCall" not in types for types in ops.values())
    branch = function_def_to_graph.function_def_to_graph(function_of(inlined, "cond_true"))
    with branch.as_default(), tf.compat.v1.Session() as session:
        x, result = session.run(branch.outputs, {branch.inputs[0].name: 0.5})
        assert x == 0.5
        assert result == pytest.approx(2 * 0.5 + 4.4816891)  # exp(1.5)


def test_side_effects_of_a_called_function_are_the_branch_s():
    v = tf.Variable(1.0)
    called = tf.function(lambda: [v.assign_add(1.0), None][1])

    @tf.function
    def step(x):
        def branch():
            called()
            called()
            return x

        return tf.cond(x > 0.0, branch, lambda: x)

    branch = function_of(inline_in_functions(program_of_function(step, tf.constant(1.0))), "cond_true")
    op_of = {node.name: node.op for node in branch.node_def}
    effects = [branch.control_ret[name] for name in branch.signature.control_output]
    assert [op_of[name] for name in effects] == ["AssignAddVariableOp"] * 2
    assert "StatefulPartitionedCall" not in op_of.values()


def test_a_function_for_xla_keeps_its_calls():
    inner = tf.function(lambda x: tf.sin(x))
    compiled = tf.function(lambda x: inner(x), jit_compile=True)
    step = tf.function(lambda x: tf.cond(x > 0.0, lambda: compiled(x), lambda: x))
    inlined = inline_in_functions(program_of_function(step, tf.constant(1.0)))
    assert "PartitionedCall" in next(types for types in ops_of_functions(inlined).values() if len(types) > 1)
    body = next(f for f in inlined.graph_def.library.function if "_XlaMustCompile" in f.attr)
    assert "PartitionedCall" in [node.op for node in body.node_def]


OFFSETS = {"node": {"none": 0, "first": 0, "second": 2, "no_more": 3}}  # 0, 2, 1 and 0 tensors


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        ("argument", "argument"),
        ("^argument", "^argument"),
        ("^node", "^node"),
        ("node:first:0", "node:0"),
        ("node:first:1", "node:1"),
        ("node:second:0", "node:2"),
    ],
)
def test_names_of_tensors_in_functions_and_graphs(nested, flat):
    assert flat_tensor(nested, OFFSETS) == flat
    assert nested_tensor(flat, OFFSETS) == nested
