"""Handles that a loop only passes on are taken from before it."""

import tensorflow as tf

from tf_placer.graph.clean import bypass_loop_handles
from tf_placer.graph.program import Program
from tf_placer.graph.read_function import program_of_function


def loop_program() -> Program:
    """A loop over (counter, handle), and a read of the handle that comes out of it."""
    v = tf.Variable([1.0, 2.0], name="v")

    @tf.function
    def step(n):
        _, x = tf.while_loop(lambda i, _: i < n, lambda i, x: (i + 1, x + v), (0, tf.zeros(2)))
        return x + v

    return program_of_function(step, tf.constant(3))


def test_the_read_takes_the_variable_and_still_waits():
    program = loop_program()
    (loop,) = (node for node in program.graph_def.node if node.op == "While")
    handle = list(loop.attr["T"].list.type).index(tf.resource.as_datatype_enum)
    (read,) = (node for node in program.graph_def.node if node.op == "ReadVariableOp")
    read.input[0] = f"{loop.name}:{handle}"
    del read.input[1:]
    (result,) = (node for node in bypass_loop_handles(program).graph_def.node if node.op == "ReadVariableOp")
    assert list(result.input) == ["v", f"^{loop.name}"]
    assert list(read.input) == [f"{loop.name}:{handle}"]


def test_a_handle_that_the_body_exchanges_stays():
    program = loop_program()
    (loop,) = (node for node in program.graph_def.node if node.op == "While")
    handle = list(loop.attr["T"].list.type).index(tf.resource.as_datatype_enum)
    name = loop.attr["body"].func.name
    (body,) = (f for f in program.graph_def.library.function if f.signature.name == name)
    body.ret[body.signature.output_arg[handle].name] = body.signature.input_arg[0].name
    (read,) = (node for node in program.graph_def.node if node.op == "ReadVariableOp")
    read.input[0] = f"{loop.name}:{handle}"
    results = bypass_loop_handles(program).graph_def.node
    assert [node.input[0] for node in results if node.op == "ReadVariableOp"] == [f"{loop.name}:{handle}"]
