"""Only what a result or side effect needs stays."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.graph.clean import (
    MAX_CLONED_BYTES,
    bypass_loop_handles,
    bypass_noops,
    clone_constants,
    default_attributes,
    prune,
    release_results,
    rename_branches,
    split_identity_n,
    topological_order,
)
from tf_placer.graph.item import Item
from tf_placer.graph.program import Program
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


def test_defaults_are_written_out_and_values_kept():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
    node = graph_def.node.add(name="product", op="MatMul", input=["a", "a"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    node.attr["transpose_b"].b = True
    before = graph_def.SerializeToString(deterministic=True)
    program = default_attributes(Program(graph_def, (), ("product:0",), (), ()))
    attributes = program.graph_def.node[1].attr
    assert attributes["transpose_b"].b and not attributes["transpose_a"].b
    assert {"T", "transpose_a", "transpose_b"} <= set(attributes)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_an_item_has_them_and_reading_its_shapes_changes_nothing():
    item = Item.from_function(
        tf.function(lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID")), tf.zeros([1, 4, 4, 3])
    )
    (pool,) = [node for node in item.graph_def.node if node.op == "MaxPool"]
    assert pool.attr["data_format"].s == b"NHWC" and "explicit_paddings" in pool.attr


def test_which_control_edges_go(program_of):
    program = program_of(
        """
        a = Const()
        v = VarHandleOp()
        effect = AssignVariableOp(v, a)
        unsure = AssignVariableOp(v, a)
        result = Identity(a, ^effect, ^unsure, ^all, ^some)
        all = NoOp(^effect, ^inner_all)
        inner_all = NoOp(^effect)
        some = NoOp(^effect, ^unsure)
        inner = Identity(a, ^effect)
        last = Identity(inner, ^effect)
        read = ReadVariableOp(v, ^effect)
        """,
        fetches=["result:0", "inner:0", "read:0"],
        control_outputs=["effect"],
    )
    inputs = {node.name: list(node.input) for node in release_results(program).graph_def.node}
    assert inputs["result"] == ["a", "^unsure", "^some"]  # nothing says that `unsure` runs anyway
    assert inputs["inner"] == ["a", "^effect"]  # read by another node
    assert inputs["last"] == ["inner", "^effect"]  # no result
    assert inputs["read"] == ["v", "^effect"]  # would read another value


SHARED = """
c = Const()
x = Neg(c)
y = AddV2(c, c, ^c)
z = Neg(y)
"""


def test_each_consumer_has_its_own_copy(program_of):
    result = clone_constants(program_of(SHARED, fetches=["z:0"])).graph_def
    nodes = {node.name: node for node in result.node}
    assert list(nodes) == ["c", "x", "c/copy", "y", "z"]
    assert list(nodes["x"].input) == ["c"]
    assert list(nodes["y"].input) == ["c/copy", "c/copy", "^c"]
    assert nodes["c/copy"].attr["value"] == nodes["c"].attr["value"]


def test_a_fetched_constant_is_used_by_the_fetch(program_of):
    result = clone_constants(program_of("c = Const()\nx = Neg(c)", fetches=["c:0", "x:0"])).graph_def
    assert [list(node.input) for node in result.node if node.name == "x"] == [["c/copy"]]


@pytest.mark.parametrize(("floats", "copies"), [(MAX_CLONED_BYTES // 4, 1), (MAX_CLONED_BYTES // 4 + 1, 0)])
def test_size_limit(program_of, floats, copies):
    program = program_of(SHARED, fetches=["z:0"])
    value = tf.make_tensor_proto(np.arange(floats, dtype=np.float32))
    program.graph_def.node[0].attr["value"].tensor.CopyFrom(value)
    assert len(clone_constants(program).graph_def.node) == 4 + copies


def test_inputs_first_and_ties_by_position(program_of):
    program = program_of(
        """
        z = Neg(b, ^y, ^c)
        y = Const()
        c = Const()
        b = Neg(c)
        """,
        fetches=["z:0"],
        control_outputs=["b", "y", "b"],
    )
    result = topological_order(program)
    assert [node.name for node in result.graph_def.node] == ["y", "c", "b", "z"]
    assert list(result.graph_def.node[3].input) == ["b", "^y", "^c"]
    assert result.control_outputs == ("y", "b")


def test_a_cycle_is_named(program_of):
    with pytest.raises(InputError, match="'p' is on or behind a cycle"):
        topological_order(program_of("p = Neg(q)\nq = Neg(p)"))


def test_an_old_style_loop_is_no_cycle(program_of):
    program = program_of(
        """
        merge = Merge(enter, next)
        enter = Enter(c)
        next = NextIteration(merge)
        c = Const()
        """
    )
    names = [node.name for node in topological_order(program).graph_def.node]
    assert names == ["c", "enter", "merge", "next"]


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


def inputs(program):
    return {node.name: list(node.input) for node in program.graph_def.node}


def test_one_consumer_or_one_producer_needs_no_hub(program_of):
    program = program_of(
        """
        a = Const()
        b = Const()
        join = NoOp(^a, ^b)
        chain = NoOp(^join)
        x = Neg(a, ^chain, ^b)
        fork = NoOp(^a)
        y = Neg(b, ^fork)
        z = Neg(b, ^fork)
        nothing = NoOp()
        w = Neg(b, ^nothing)
        """,
        fetches=["x:0", "y:0", "z:0", "w:0"],
    )
    assert inputs(bypass_noops(program)) == {
        "a": [],
        "b": [],
        "x": ["a", "^a", "^b"],
        "y": ["b", "^a"],
        "z": ["b", "^a"],
        "w": ["b"],
    }


def test_a_hub_of_many_to_many_stays(program_of):
    text = """
        a = Const()
        b = Const()
        hub = NoOp(^a, ^b)
        x = Neg(a, ^hub)
        y = Neg(b, ^hub)
        """
    program = program_of(text, fetches=["x:0", "y:0"])
    assert inputs(bypass_noops(program)) == inputs(program)


def test_a_side_effect_is_what_the_noop_waited_for(program_of):
    program = program_of(
        """
        a = Const()
        b = Const()
        hub = NoOp(^a, ^b)
        x = Neg(a, ^hub)
        y = Neg(b, ^hub)
        group = NoOp(^hub, ^x)
        """,
        fetches=["y:0"],
        control_outputs=["group", "hub"],
    )
    assert bypass_noops(program).control_outputs == ("a", "b", "x")


def test_parts_take_the_inputs_one_by_one(program_of):
    program = program_of(
        """
        a = Const()
        b = Const()
        n = NoOp()
        both = IdentityN(a, b, ^n)
        x = Neg(both:1)
        y = Neg(both)
        z = Neg(x, ^both)
        """,
        fetches=["both:1", "y:0"],
        control_outputs=["both"],
    )
    result = split_identity_n(program)
    inputs = {node.name: list(node.input) for node in result.graph_def.node}
    assert inputs["both/0"] == ["a", "^n"]
    assert inputs["both/1"] == ["b", "^n"]
    assert inputs["x"] == ["both/1:0"]
    assert inputs["y"] == ["both/0:0"]
    assert inputs["z"] == ["x", "^both/0", "^both/1"]
    assert "both" not in inputs
    assert result.fetches == ("both/1:0", "y:0")
    assert result.control_outputs == ("both/0", "both/1")


def test_taken_names_are_avoided_and_the_argument_is_left_alone(program_of):
    program = program_of(
        """
        both/0 = Const()
        both = IdentityN(both/0)
        x = Neg(both)
        """,
        fetches=["x:0"],
    )
    names = [node.name for node in split_identity_n(program).graph_def.node]
    assert names == ["both/0", "both/0_1", "x"]
    assert [node.op for node in program.graph_def.node] == ["Const", "IdentityN", "Neg"]


def test_a_gradient_of_its_own_stays_whole_where_a_result_depends_on_it(program_of):
    program = program_of(
        """
        a = Const()
        b = Const()
        custom = IdentityN(a, b)
        plain = IdentityN(custom, b)
        x = Neg(plain:1)
        updated = IdentityN(a, b)
        y = Neg(updated)
        z = Neg(plain)
        """,
        fetches=["z:0"],
        control_outputs=["x", "y"],
    )
    for node in program.graph_def.node:
        if node.name in ("custom", "updated"):
            node.attr["_gradient_op_type"].s = b"CustomGradient-1"
    result = split_identity_n(program)
    inputs = {node.name: list(node.input) for node in result.graph_def.node}
    assert inputs["custom"] == ["a", "b"]
    assert inputs["plain/0"] == ["custom"]
    assert inputs["y"] == ["updated/0:0"]  # only an update depends on it
    assert {"plain", "updated"}.isdisjoint(inputs)


def test_a_branching_op_with_its_input_below_its_name_is_renamed(program_of):
    program = program_of(
        """
        x = Const()
        cond = StatelessIf(x, x, ^x)
        cond/x = Identity(cond:1)
        y = Neg(cond/x, ^cond)
        """,
        fetches=["cond:1", "y:0"],
        control_outputs=["cond", "y"],
    )
    program.graph_def.node[3].attr["_class"].list.s.append(b"loc:@cond")
    before = program.graph_def.SerializeToString(deterministic=True)
    renamed = rename_branches(program)
    assert program.graph_def.SerializeToString(deterministic=True) == before
    assert names(renamed) == ["x", "cond_1", "cond/x", "y"]
    assert [list(node.input) for node in renamed.graph_def.node] == [
        [],
        ["x", "x", "^x"],
        ["cond_1:1"],
        ["cond/x", "^cond_1"],
    ]
    assert list(renamed.graph_def.node[3].attr["_class"].list.s) == [b"loc:@cond_1"]
    assert renamed.fetches == ("cond_1:1", "y:0")
    assert renamed.control_outputs == ("cond_1", "y")


def test_the_new_name_is_free_and_has_no_input_below_it_either(program_of):
    program = program_of(
        """
        x = Const()
        cond_1 = Const()
        cond = Case(x, cond_1)
        cond/x = Identity(cond)
        cond_2/cond_1 = Identity(cond)
        """
    )
    assert names(rename_branches(program))[2] == "cond_3"


def test_an_input_that_is_renamed_counts_by_its_new_name(program_of):
    program = program_of(
        """
        x = Const()
        a = If(x, x)
        a/x = Identity(a)
        b = If(x, a)
        b/a_1 = Identity(b)
        """
    )
    assert names(rename_branches(program)) == ["x", "a_1", "a/x", "b_1", "b/a_1"]


def test_other_names_below_and_other_ops_stay(program_of):
    program = program_of(
        """
        x = Const()
        cond = If(x, x)
        cond/Identity = Identity(cond)
        y = Neg(x)
        y/x = Identity(y)
        """
    )
    assert rename_branches(program) is program
