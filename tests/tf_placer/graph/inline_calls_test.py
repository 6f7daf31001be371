"""Inlining keeps what waits for what; names and refusals."""

import pytest
import tensorflow as tf

from colocation.op_facts import parse_input
from tf_placer.base.arguments import InputError
from tf_placer.graph.clean import inline_calls
from tf_placer.graph.read_function import program_of_function


def ancestors(graph_def, name):
    """Every node that must end before ``name`` starts."""
    inputs = {node.name: [parse_input(text)[1] for text in node.input] for node in graph_def.node}
    found, frontier = set(), [name]
    while frontier:
        for producer in inputs[frontier.pop()]:
            if producer not in found:
                found.add(producer)
                frontier.append(producer)
    return found


def nodes_of_op(graph_def, op):
    return [node.name for node in graph_def.node if node.op == op]


def test_body_waits_for_the_call_and_the_call_for_the_body():
    v, u = tf.Variable(1.0), tf.Variable(1.0)

    @tf.function
    def body(x):
        v.assign_add(tf.exp(x))
        return tf.sin(x)

    @tf.function
    def step(x):
        u.assign(x)  # AssignVariableOp
        with tf.control_dependencies([tf.print("first")]):
            y = body(x)
        with tf.control_dependencies([y]):
            u.assign_sub(1.0)
        return y

    program = program_of_function(step, tf.constant(2.0))
    # Tracing makes results wait for side effects; what waits for the call must do without.
    (function,) = program.graph_def.library.function
    for node in function.node_def:
        if node.op == "Identity":
            del node.input[1:]
    before = program.graph_def.SerializeToString(deterministic=True)
    graph_def = inline_calls(program).graph_def
    assert program.graph_def.SerializeToString(deterministic=True) == before
    (add,) = nodes_of_op(graph_def, "AssignAddVariableOp")
    (sub,) = nodes_of_op(graph_def, "AssignSubVariableOp")
    (shown,) = nodes_of_op(graph_def, "PrintV2")
    (sin,) = nodes_of_op(graph_def, "Sin")
    assert shown in ancestors(graph_def, add)
    assert {add, sin} <= ancestors(graph_def, sub)
    assert add.startswith("StatefulPartitionedCall/")
    assert not nodes_of_op(graph_def, "StatefulPartitionedCall")


def test_side_effects_of_nested_calls_are_control_outputs():
    v = tf.Variable(1.0)
    inner = tf.function(lambda: v.assign_add(1.0))
    middle = tf.function(lambda: [inner(), None][1])
    program = inline_calls(program_of_function(tf.function(lambda: [middle(), None][1])))
    assert program.fetches == ()
    op_of = {node.name: node.op for node in program.graph_def.node}
    assert "AssignAddVariableOp" in [op_of[name] for name in program.control_outputs]


def test_two_calls_of_one_function_get_names_of_their_own():
    body = tf.function(lambda x: tf.sin(x))
    step = tf.function(lambda x: body(x) + body(2.0 * x))
    graph_def = inline_calls(program_of_function(step, tf.constant(1.0))).graph_def
    assert len(nodes_of_op(graph_def, "Sin")) == 2
    assert len({node.name for node in graph_def.node}) == len(graph_def.node)


def test_colocation_classes_follow_the_new_names():
    @tf.function
    def body(x):
        y = tf.sin(x, name="anchor")
        with tf.compat.v1.colocate_with(y.op):
            return tf.exp(y)

    graph_def = inline_calls(program_of_function(tf.function(lambda x: body(x)), tf.constant(1.0))).graph_def
    (exp,) = (node for node in graph_def.node if node.op == "Exp")
    assert exp.attr["_class"].list.s[0].decode() == "loc:@" + nodes_of_op(graph_def, "Sin")[0]


def one_call(**changes):
    body = tf.function(lambda x: tf.sin(x))
    program = program_of_function(tf.function(lambda x: body(x)), tf.constant(1.0))
    (call,) = (node for node in program.graph_def.node if node.op == "PartitionedCall")
    return program, call


def test_missing_function_is_named():
    program, call = one_call()
    call.attr["f"].func.name = "gone"
    with pytest.raises(InputError, match="'gone', which the graph's library lacks"):
        inline_calls(program)


def test_wrong_number_of_inputs_is_named():
    program, call = one_call()
    call.input.append(call.input[0])
    with pytest.raises(InputError, match=r"gives 2 tensors .* which takes 1"):
        inline_calls(program)


def test_recursion_is_refused():
    program, call = one_call()
    (function,) = program.graph_def.library.function
    nested = function.node_def.add()
    nested.CopyFrom(call)
    nested.name = "again"
    nested.input[0] = function.signature.input_arg[0].name
    with pytest.raises(InputError, match=r"calls itself.*tf\.while_loop"):
        inline_calls(program)


def test_unknown_op_in_a_body_is_named():
    program, _ = one_call()
    program.graph_def.library.function[0].node_def[0].op = "NoSuchOp"
    with pytest.raises(InputError, match="unknown op type 'NoSuchOp'"):
        inline_calls(program)


def test_calls_of_one_function_do_not_share_a_frame():
    @tf.function
    def body(x):
        return tf.raw_ops.Exit(data=tf.raw_ops.Enter(data=x, frame_name="loop"))

    @tf.function
    def step(x):
        return body(x) + body(x + 1.0)

    graph_def = inline_calls(program_of_function(step, tf.constant(1.0))).graph_def
    frames = [node.attr["frame_name"].s for node in graph_def.node if node.op == "Enter"]
    assert len(frames) == len(set(frames)) == 2
