"""Only what a result or side effect needs stays."""

import dataclasses

import tensorflow as tf

from tf_placer.graph.clean import prune, release_results
from tf_placer.graph.read_function import program_of_function


def names(program):
    return [node.name for node in program.graph_def.node]


def test_nodes_behind_fetches_and_side_effects_stay(program_of):
    program = program_of(
        """
        v = VarHandleOp()
        dead = Neg(a)
        a = Const()
        n = NoOp()
        kept = Neg(a, ^n)
        effect = AssignVariableOp(v, a)
        """,
        fetches=["kept:0"],
        control_outputs=["effect"],
    )
    assert names(prune(program)) == ["v", "a", "n", "kept", "effect"]


def test_a_read_is_no_side_effect(program_of):
    program = program_of(
        """
        v = VarHandleOp()
        read = ReadVariableOp(v)
        a = Const()
        """,
        fetches=["a:0"],
        control_outputs=["read"],
    )
    result = prune(program)
    assert names(result) == ["a"]
    assert result.control_outputs == ()


def test_a_read_that_is_used_is_done_when_the_program_is(program_of):
    program = program_of(
        """
        v = VarHandleOp()
        read = ReadVariableOp(v)
        result = Neg(read)
        """,
        fetches=["result:0"],
        control_outputs=["read", "v"],
    )
    assert prune(program).control_outputs == ("read",)


def test_unused_inputs_variables_and_functions_go():
    used, unused = tf.Variable(1.0, name="used"), tf.Variable(1.0, name="unused")

    @tf.function
    def step(x, y):
        tf.cond(y > 0.0, lambda: unused + y, lambda: y)
        return x + used

    program = program_of_function(step, tf.constant(1.0), tf.constant(2.0))
    assert len(program.graph_def.library.function) == 2
    # Tracing lists the branch as a side effect; without that nothing needs it.
    result = prune(dataclasses.replace(release_results(program), control_outputs=()))
    assert [feed.node for feed in result.feeds] == ["x"]
    assert [variable.node for variable in result.variables] == ["used"]
    assert len(result.graph_def.library.function) == 0


def test_a_colocation_class_outlives_its_namesake(program_of):
    program = program_of(
        """
        a = Const()
        b = Neg(a)
        c = Neg(b)
        """,
        fetches=["c:0"],
    )
    for node in program.graph_def.node[1:]:
        node.attr["_class"].list.s.append(b"loc:@gone")
    nodes = {node.name: node for node in prune(program).graph_def.node}
    assert nodes["b"].attr["_class"].list.s[0] == nodes["c"].attr["_class"].list.s[0] == b"loc:@b"
