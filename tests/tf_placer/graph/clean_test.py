"""Each clean-up on a graph of a few ops: only what a result or side effect needs stays."""

import dataclasses
from collections.abc import Callable

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


def text_of(program: Program) -> str:
    """The form of ``program_of``: ``name = Op(inputs); ... -> results | control outputs``."""
    nodes = [f"{node.name} = {node.op}({', '.join(node.input)})" for node in program.graph_def.node]
    return f"{'; '.join(nodes)} -> {', '.join(program.fetches)} | {', '.join(program.control_outputs)}"


A_HUB = "a = Const(); b = Const(); hub = NoOp(^a, ^b); x = Neg(a, ^hub); y = Neg(b, ^hub)"
SHARED = "c = Const(); x = Neg(c); y = AddV2(c, c, ^c); z = Neg(y)"
CASES: dict[str, tuple[Callable[[Program], Program], str, str]] = {
    "what results and side effects need stays": (
        prune,
        "v = VarHandleOp(); dead = Neg(a); a = Const(); n = NoOp(); kept = Neg(a, ^n); "
        "effect = AssignVariableOp(v, a) -> kept:0 | effect",
        "v = VarHandleOp(); a = Const(); n = NoOp(); kept = Neg(a, ^n); effect = AssignVariableOp(v, a) "
        "-> kept:0 | effect",
    ),
    "a read is no side effect": (
        prune,
        "v = VarHandleOp(); read = ReadVariableOp(v); a = Const() -> a:0 | read",
        "a = Const() -> a:0 | ",
    ),
    "a read that is used is done when the program is": (
        prune,
        "v = VarHandleOp(); read = ReadVariableOp(v); result = Neg(read) -> result:0 | read, v",
        "v = VarHandleOp(); read = ReadVariableOp(v); result = Neg(read) -> result:0 | read",
    ),
    # Nothing says that `unsure` runs anyway; `inner` is read by another node, `last` is no result, and `read` would
    # read another value.
    "control edges to a last identity go": (
        release_results,
        "a = Const(); v = VarHandleOp(); effect = AssignVariableOp(v, a); unsure = AssignVariableOp(v, a); "
        "result = Identity(a, ^effect, ^unsure, ^all, ^some); all = NoOp(^effect, ^inner_all); "
        "inner_all = NoOp(^effect); some = NoOp(^effect, ^unsure); inner = Identity(a, ^effect); "
        "last = Identity(inner, ^effect); read = ReadVariableOp(v, ^effect) -> result:0, inner:0, read:0 | effect",
        "a = Const(); v = VarHandleOp(); effect = AssignVariableOp(v, a); unsure = AssignVariableOp(v, a); "
        "result = Identity(a, ^unsure, ^some); all = NoOp(^effect, ^inner_all); "
        "inner_all = NoOp(^effect); some = NoOp(^effect, ^unsure); inner = Identity(a, ^effect); "
        "last = Identity(inner, ^effect); read = ReadVariableOp(v, ^effect) -> result:0, inner:0, read:0 | effect",
    ),
    "each consumer has a constant of its own": (
        clone_constants,
        f"{SHARED} -> z:0 | ",
        "c = Const(); x = Neg(c); c/copy = Const(); y = AddV2(c/copy, c/copy, ^c); z = Neg(y) -> z:0 | ",
    ),
    "a fetched constant is used by the fetch": (
        clone_constants,
        "c = Const(); x = Neg(c) -> c:0, x:0 | ",
        "c = Const(); c/copy = Const(); x = Neg(c/copy) -> c:0, x:0 | ",
    ),
    "inputs come first, ties by position": (
        topological_order,
        "z = Neg(b, ^y, ^c); y = Const(); c = Const(); b = Neg(c) -> z:0 | b, y, b",
        "y = Const(); c = Const(); b = Neg(c); z = Neg(b, ^y, ^c) -> z:0 | y, b",
    ),
    "an old-style loop is no cycle": (
        topological_order,
        "merge = Merge(enter, next); enter = Enter(c); next = NextIteration(merge); c = Const() ->  | ",
        "c = Const(); enter = Enter(c); merge = Merge(enter, next); next = NextIteration(merge) ->  | ",
    ),
    "one consumer or one producer needs no hub": (
        bypass_noops,
        "a = Const(); b = Const(); join = NoOp(^a, ^b); chain = NoOp(^join); x = Neg(a, ^chain, ^b); "
        "fork = NoOp(^a); y = Neg(b, ^fork); z = Neg(b, ^fork); nothing = NoOp(); w = Neg(b, ^nothing) "
        "-> x:0, y:0, z:0, w:0 | ",
        "a = Const(); b = Const(); x = Neg(a, ^a, ^b); y = Neg(b, ^a); z = Neg(b, ^a); w = Neg(b) "
        "-> x:0, y:0, z:0, w:0 | ",
    ),
    "a hub of many to many stays": (bypass_noops, f"{A_HUB} -> x:0, y:0 | ", f"{A_HUB} -> x:0, y:0 | "),
    "a side effect is what the NoOp waited for": (
        bypass_noops,
        f"{A_HUB}; group = NoOp(^hub, ^x) -> y:0 | group, hub",
        f"{A_HUB} -> y:0 | a, b, x",
    ),
    "parts take the inputs one by one": (
        split_identity_n,
        "a = Const(); b = Const(); n = NoOp(); both = IdentityN(a, b, ^n); x = Neg(both:1); y = Neg(both); "
        "z = Neg(x, ^both) -> both:1, y:0 | both",
        "a = Const(); b = Const(); n = NoOp(); both/0 = Identity(a, ^n); both/1 = Identity(b, ^n); "
        "x = Neg(both/1:0); y = Neg(both/0:0); z = Neg(x, ^both/0, ^both/1) -> both/1:0, y:0 | both/0, both/1",
    ),
    "names in use are avoided": (
        split_identity_n,
        "both/0 = Const(); both = IdentityN(both/0); x = Neg(both) -> x:0 | ",
        "both/0 = Const(); both/0_1 = Identity(both/0); x = Neg(both/0_1:0) -> x:0 | ",
    ),
    "a branching op with its input below its name is renamed": (
        rename_branches,
        "x = Const(); cond = StatelessIf(x, x, ^x); cond/x = Identity(cond:1); y = Neg(cond/x, ^cond) "
        "-> cond:1, y:0 | cond, y",
        "x = Const(); cond_1 = StatelessIf(x, x, ^x); cond/x = Identity(cond_1:1); y = Neg(cond/x, ^cond_1) "
        "-> cond_1:1, y:0 | cond_1, y",
    ),
    "the new name is free and has no input below it either": (
        rename_branches,
        "x = Const(); cond_1 = Const(); cond = Case(x, cond_1); cond/x = Identity(cond); "
        "cond_2/cond_1 = Identity(cond) ->  | ",
        "x = Const(); cond_1 = Const(); cond_3 = Case(x, cond_1); cond/x = Identity(cond_3); "
        "cond_2/cond_1 = Identity(cond_3) ->  | ",
    ),
    "an input that is renamed counts by its new name": (
        rename_branches,
        "x = Const(); a = If(x, x); a/x = Identity(a); b = If(x, a); b/a_1 = Identity(b) ->  | ",
        "x = Const(); a_1 = If(x, x); a/x = Identity(a_1); b_1 = If(x, a_1); b/a_1 = Identity(b_1) ->  | ",
    ),
    "other names below and other ops stay": (
        rename_branches,
        "x = Const(); cond = If(x, x); cond/Identity = Identity(cond); y = Neg(x); y/x = Identity(y) ->  | ",
        "x = Const(); cond = If(x, x); cond/Identity = Identity(cond); y = Neg(x); y/x = Identity(y) ->  | ",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_graph_is_cleaned_up_and_the_argument_left_alone(program_of, name):
    clean_up, before, after = CASES[name]
    program = program_of(before)
    assert text_of(clean_up(program)) == after
    assert text_of(program) == before


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


def test_colocation_classes_outlive_their_namesake_and_follow_its_name(program_of):
    program = program_of("a = Const(); b = Neg(a); c = Neg(b) -> c:0 | ")
    for node in program.graph_def.node[1:]:
        node.attr["_class"].list.s.append(b"loc:@gone")
    nodes = {node.name: node for node in prune(program).graph_def.node}
    assert nodes["b"].attr["_class"].list.s[0] == nodes["c"].attr["_class"].list.s[0] == b"loc:@b"
    program = program_of("x = Const(); cond = If(x); cond/x = Identity(cond) ->  | ")
    program.graph_def.node[2].attr["_class"].list.s.append(b"loc:@cond")
    assert list(rename_branches(program).graph_def.node[2].attr["_class"].list.s) == [b"loc:@cond_1"]


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


@pytest.mark.parametrize(("floats", "copies"), [(MAX_CLONED_BYTES // 4, 1), (MAX_CLONED_BYTES // 4 + 1, 0)])
def test_copies_of_constants_have_their_value_up_to_a_size(program_of, floats, copies):
    program = program_of(f"{SHARED} -> z:0 | ")
    value = tf.make_tensor_proto(np.arange(floats, dtype=np.float32))
    program.graph_def.node[0].attr["value"].tensor.CopyFrom(value)
    constants = [node for node in clone_constants(program).graph_def.node if node.op == "Const"]
    assert [node.attr["value"].tensor for node in constants] == [value] * (1 + copies)


def test_a_cycle_is_named(program_of):
    with pytest.raises(InputError, match="'p' is on or behind a cycle"):
        topological_order(program_of("p = Neg(q); q = Neg(p) ->  | "))


@pytest.mark.parametrize("is_exchanged", [False, True])
def test_a_read_behind_a_loop_takes_the_variable_and_still_waits(is_exchanged):
    """Unless the body exchanges the handle, of a loop over (counter, handle)."""
    v = tf.Variable([1.0, 2.0], name="v")

    @tf.function
    def step(n):
        _, x = tf.while_loop(lambda i, _: i < n, lambda i, x: (i + 1, x + v), (0, tf.zeros(2)))
        return x + v

    program = program_of_function(step, tf.constant(3))
    (loop,) = (node for node in program.graph_def.node if node.op == "While")
    handle = list(loop.attr["T"].list.type).index(tf.resource.as_datatype_enum)
    (read,) = (node for node in program.graph_def.node if node.op == "ReadVariableOp")
    read.input[:] = [f"{loop.name}:{handle}"]
    name = loop.attr["body"].func.name
    (body,) = (f for f in program.graph_def.library.function if f.signature.name == name)
    if is_exchanged:
        body.ret[body.signature.output_arg[handle].name] = body.signature.input_arg[0].name
    (result,) = (node for node in bypass_loop_handles(program).graph_def.node if node.op == "ReadVariableOp")
    assert list(result.input) == ([f"{loop.name}:{handle}"] if is_exchanged else ["v", f"^{loop.name}"])
    assert list(read.input) == [f"{loop.name}:{handle}"]


def test_a_gradient_of_its_own_stays_whole_where_a_result_depends_on_it(program_of):
    program = program_of(
        "a = Const(); b = Const(); custom = IdentityN(a, b); plain = IdentityN(custom, b); x = Neg(plain:1); "
        "updated = IdentityN(a, b); y = Neg(updated); z = Neg(plain) -> z:0 | x, y"
    )
    for node in program.graph_def.node:
        if node.name in ("custom", "updated"):
            node.attr["_gradient_op_type"].s = b"CustomGradient-1"
    assert text_of(split_identity_n(program)) == (
        "a = Const(); b = Const(); custom = IdentityN(a, b); plain/0 = Identity(custom); plain/1 = Identity(b); "
        "x = Neg(plain/1:0); updated/0 = Identity(a); updated/1 = Identity(b); y = Neg(updated/0:0); "
        "z = Neg(plain/0:0) -> z:0 | x, y"  # only an update depends on `updated`
    )
