"""A damaged graph is refused in one line; each clean-up leaves only what a result or side effect needs."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from tests.refused import refused
from tf_placer.base.arguments import InputError
from tf_placer.graph import clean
from tf_placer.graph.check import MAX_DEPTH, check_calls, check_graph, is_tensor_name
from tf_placer.graph.item import Item
from tf_placer.graph.program import Program
from tf_placer.graph.read_function import program_of_function


@pytest.fixture
def graph_def() -> tf.compat.v1.GraphDef:
    """x -> MatMul with a constant -> a call -> a loop, all of one library."""
    doubled = tf.function(lambda x: x + x)

    @tf.function(input_signature=[tf.TensorSpec([2, 2], tf.float32, name="x")])
    def program(x):
        y = doubled(tf.matmul(x, tf.constant([[1.0, 2.0], [3.0, 4.0]], name="weights"), name="product"))
        return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 2.0), [0, y])[1]

    return program.get_concrete_function().graph.as_graph_def()


def node(graph_def, op: str):
    return next(one for one in graph_def.node if one.op == op)


def body(graph_def):
    """The function of the call."""
    name = node(graph_def, "PartitionedCall").attr["f"].func.name
    return next(one for one in graph_def.library.function if one.signature.name == name)


def test_a_good_graph_passes_and_is_left_alone(graph_def):
    before = graph_def.SerializeToString(deterministic=True)
    check_graph(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_an_op_type_that_is_not_registered_passes(graph_def):
    graph_def.node.add(name="own", op="OpOfALibraryThatIsNotLoaded", input=["x"])
    graph_def.node.add(name="reader", op="Identity", input=["own:7"]).attr["T"].type = 1
    check_graph(graph_def)


def _set_input(graph_def, text: str) -> None:
    node(graph_def, "MatMul").input[1] = text


def _cycle(graph_def) -> None:
    graph_def.node.add(name="a", op="Identity", input=["b"]).attr["T"].type = 1
    graph_def.node.add(name="b", op="Identity", input=["a"]).attr["T"].type = 1


def _splat(graph_def) -> None:
    value = node(graph_def, "Const").attr["value"].tensor
    value.ClearField("tensor_content")
    value.float_val.append(1.0)
    value.tensor_shape.dim[0].size = 10**12


def _many_outputs(graph_def) -> None:
    split = graph_def.node.add(name="split", op="Split", input=["weights", "product"])
    split.attr["T"].type = 1
    split.attr["num_split"].i = 10**12


def _direct_call(graph_def):
    signature = body(graph_def).signature
    graph_def.node.add(name="direct", op=signature.name, input=["x"])
    return signature


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g: g.node.add(name="", op="NoOp"), "node name '' is empty"),
        (lambda g: g.node.add(name="x", op="NoOp"), "there are two of node 'x'"),
        (lambda g: _set_input(g, "nowhere"), "'product' has input 'nowhere', which is not there"),
        (lambda g: _set_input(g, "x:1"), "'product' has input 'x:1', which is not there"),
        (lambda g: _set_input(g, "x:one"), "has input 'x:one'"),
        (lambda g: _set_input(g, f"x:{'9' * 5000}"), "has input 'x:999"),
        (lambda g: node(g, "MatMul").input.insert(0, "^x"), "behind a control input"),
        (lambda g: node(g, "MatMul").input.append("x"), r"'product' \(MatMul\) has 3 inputs, expected 2"),
        (lambda g: node(g, "MatMul").attr.pop("T"), r"'product' \(MatMul\): attribute 'T' is missing"),
        (lambda g: node(g, "MatMul").attr["T"].CopyFrom(g.node[0].attr["shape"]), "attribute 'T' is no type"),
        (lambda g: setattr(node(g, "MatMul").attr["T"], "type", 9999), "unknown dtype 9999"),
        (lambda g: node(g, "MatMul").attr["_class"].list.s.append(b"\xff"), "'_class' is no list of names"),
        (_cycle, "on a cycle"),
        (_splat, "a constant of 8000000000000 bytes; make a tensor of that size with tf.fill"),
        (_many_outputs, "'split'.* has 1000000000000 outputs"),
        (lambda g: _direct_call(g).attr.add(name="N", type="of mine"), "'direct' .* 'N' is missing"),
        (lambda g: setattr(_direct_call(g).input_arg[0], "number_attr", "N"), "'direct' .* lacks .* 'N'"),
    ],
)
def test_damage_to_the_main_graph(graph_def, damage, message):
    damage(graph_def)
    with refused(message):
        check_graph(graph_def)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.node_def.add(name="x", op="NoOp"), "two of argument or node 'x'"),
        (lambda f: f.node_def.add(name="n", op="NotLoaded", input=["nowhere"]), "has input 'nowhere'"),
        (lambda f: f.ret.update({f.signature.output_arg[0].name: "no:out:0"}), "result .* from nowhere"),
        (lambda f: f.ret.update({f.signature.output_arg[0].name: "add"}), "result .* comes from nowhere"),
        (lambda f: f.signature.control_output.append("effect"), "side effect 'effect' is no node"),
        (lambda f: setattr(f.signature.input_arg[0], "type", 0), "argument 'x' has the unknown dtype 0"),
    ],
)
def test_damage_to_a_function_names_the_function(graph_def, damage, message):
    damaged = body(graph_def)
    damage(damaged)
    with pytest.raises(InputError, match=f"function '{damaged.signature.name}': .*{message}"):
        check_graph(graph_def)


@pytest.mark.parametrize("text", ["x", "x:0", "a/b:12"])
def test_names_of_tensors(text):
    assert is_tensor_name(text)


@pytest.mark.parametrize("text", ["", ":", "x:", "^x", "x:-1", "x:a", "x:0:0", "a b", "x:٣"])
def test_other_texts_are_no_names_of_tensors(text):
    assert not is_tensor_name(text)


def call(name: str, function: str, takes: int = 0, returns: int = 0) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=name, op="StatefulPartitionedCall")
    node.attr["f"].func.name = function
    node.attr["Tin"].list.type.extend([1] * takes)
    node.attr["Tout"].list.type.extend([1] * returns)
    return node


def function(name: str, *calls: str, takes: int = 0, returns: int = 0) -> function_pb2.FunctionDef:
    """A function whose nodes are calls."""
    result = function_pb2.FunctionDef()
    result.signature.name = name
    for i in range(takes):
        result.signature.input_arg.add(name=f"in{i}")
    for i in range(returns):
        result.signature.output_arg.add(name=f"out{i}")
    result.node_def.extend(call(f"call{i}", called) for i, called in enumerate(calls))
    return result


def library(*functions: function_pb2.FunctionDef) -> dict[str, function_pb2.FunctionDef]:
    return {one.signature.name: one for one in functions}


def loop(*, takes: int) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name="loop", op="While")
    node.attr["T"].list.type.extend([1] * takes)
    node.attr["body"].func.name, node.attr["cond"].func.name = "body", "cond"
    return node


def test_calls_of_calls_pass():
    check_calls([call("a", "f"), call("b", "g")], library(function("f", "g", "g"), function("g")))


DOUBLING = [function(f"f{i}", f"f{i + 1}", f"f{i + 1}") for i in range(40)]


@pytest.mark.parametrize(
    ("node", "functions", "message"),
    [
        (call("a", "f"), [], r"node 'a' .* names function 'f', which the graph's library lacks"),
        (
            call("a", "f", takes=2, returns=2),
            [function("f", takes=1, returns=2)],
            "function 'f' takes 1 tensors and returns 2, expected 2 and 2",
        ),
        (
            loop(takes=2),
            [function("body", takes=2, returns=1), function("cond", takes=2, returns=1)],
            "function 'body' takes 2 tensors and returns 1, expected 2 and 2",
        ),
        (node_def_pb2.NodeDef(name="case", op="Case"), [], r"'case' \(Case\) has no branches"),
        (call("a", "f"), [function("f", "f")], "function 'f' calls itself"),
        (call("a", "f"), [function("f", "g"), function("g", "f")], "function 'f' calls itself"),
        (call("a", "f0"), [*DOUBLING, function("f40")], "has 2199023255551 nodes when its calls are written"),
    ],
)
def test_calls_that_are_refused(node, functions, message):
    with pytest.raises(InputError, match=message):
        check_calls([node], library(*functions))


def test_a_chain_that_is_too_deep():
    chain = [function(f"f{i}", f"f{i + 1}") for i in range(MAX_DEPTH + 1)] + [function(f"f{MAX_DEPTH + 1}")]
    check_calls([], library(*chain[1:]))
    with pytest.raises(InputError, match=f"is called through {MAX_DEPTH + 1} others"):
        check_calls([], library(*chain))


def text_of(program: Program) -> str:
    """The form of ``program_of``: ``name = Op(inputs); ... -> results | control outputs``."""
    nodes = [f"{node.name} = {node.op}({', '.join(node.input)})" for node in program.graph_def.node]
    return f"{'; '.join(nodes)} -> {', '.join(program.fetches)} | {', '.join(program.control_outputs)}"


A_HUB = "a = Const(); b = Const(); hub = NoOp(^a, ^b); x = Neg(a, ^hub); y = Neg(b, ^hub)"
LAST_IDENTITY = (
    "a = Const(); v = VarHandleOp(); effect = AssignVariableOp(v, a); unsure = AssignVariableOp(v, a); "
    "result = Identity(a, {}); all = NoOp(^effect, ^inner_all); "
    "inner_all = NoOp(^effect); some = NoOp(^effect, ^unsure); inner = Identity(a, ^effect); "
    "last = Identity(inner, ^effect); read = ReadVariableOp(v, ^effect) -> result:0, inner:0, read:0 | effect"
)
SHARED = "c = Const(); x = Neg(c); y = AddV2(c, c, ^c); z = Neg(y)"
CASES: dict[str, tuple[Callable[[Program], Program], str, str]] = {
    "what results and side effects need stays": (
        clean.prune,
        "v = VarHandleOp(); dead = Neg(a); a = Const(); n = NoOp(); kept = Neg(a, ^n); "
        "effect = AssignVariableOp(v, a) -> kept:0 | effect",
        "v = VarHandleOp(); a = Const(); n = NoOp(); kept = Neg(a, ^n); effect = AssignVariableOp(v, a) "
        "-> kept:0 | effect",
    ),
    "a read is no side effect": (
        clean.prune,
        "v = VarHandleOp(); read = ReadVariableOp(v); a = Const() -> a:0 | read",
        "a = Const() -> a:0 | ",
    ),
    "a read that is used is done when the program is": (
        clean.prune,
        "v = VarHandleOp(); read = ReadVariableOp(v); result = Neg(read) -> result:0 | read, v",
        "v = VarHandleOp(); read = ReadVariableOp(v); result = Neg(read) -> result:0 | read",
    ),
    # Nothing says that `unsure` runs anyway; `inner` is read by another node, `last` is no result, and `read` would
    # read another value.
    "control edges to a last identity go": (
        clean.release_results,
        LAST_IDENTITY.format("^effect, ^unsure, ^all, ^some"),
        LAST_IDENTITY.format("^unsure, ^some"),
    ),
    "each consumer has a constant of its own": (
        clean.clone_constants,
        f"{SHARED} -> z:0 | ",
        "c = Const(); x = Neg(c); c/copy = Const(); y = AddV2(c/copy, c/copy, ^c); z = Neg(y) -> z:0 | ",
    ),
    "a fetched constant is used by the fetch": (
        clean.clone_constants,
        "c = Const(); x = Neg(c) -> c:0, x:0 | ",
        "c = Const(); c/copy = Const(); x = Neg(c/copy) -> c:0, x:0 | ",
    ),
    "inputs come first, ties by position": (
        clean.topological_order,
        "z = Neg(b, ^y, ^c); y = Const(); c = Const(); b = Neg(c) -> z:0 | b, y, b",
        "y = Const(); c = Const(); b = Neg(c); z = Neg(b, ^y, ^c) -> z:0 | y, b",
    ),
    "an old-style loop is no cycle": (
        clean.topological_order,
        "merge = Merge(enter, next); enter = Enter(c); next = NextIteration(merge); c = Const() ->  | ",
        "c = Const(); enter = Enter(c); merge = Merge(enter, next); next = NextIteration(merge) ->  | ",
    ),
    "one consumer or one producer needs no hub": (
        clean.bypass_noops,
        "a = Const(); b = Const(); join = NoOp(^a, ^b); chain = NoOp(^join); x = Neg(a, ^chain, ^b); "
        "fork = NoOp(^a); y = Neg(b, ^fork); z = Neg(b, ^fork); nothing = NoOp(); w = Neg(b, ^nothing) "
        "-> x:0, y:0, z:0, w:0 | ",
        "a = Const(); b = Const(); x = Neg(a, ^a, ^b); y = Neg(b, ^a); z = Neg(b, ^a); w = Neg(b) "
        "-> x:0, y:0, z:0, w:0 | ",
    ),
    "a hub of many to many stays": (clean.bypass_noops, f"{A_HUB} -> x:0, y:0 | ", f"{A_HUB} -> x:0, y:0 | "),
    "a side effect is what the NoOp waited for": (
        clean.bypass_noops,
        f"{A_HUB}; group = NoOp(^hub, ^x) -> y:0 | group, hub",
        f"{A_HUB} -> y:0 | a, b, x",
    ),
    "parts take the inputs one by one": (
        clean.split_identity_n,
        "a = Const(); b = Const(); n = NoOp(); both = IdentityN(a, b, ^n); x = Neg(both:1); y = Neg(both); "
        "z = Neg(x, ^both) -> both:1, y:0 | both",
        "a = Const(); b = Const(); n = NoOp(); both/0 = Identity(a, ^n); both/1 = Identity(b, ^n); "
        "x = Neg(both/1:0); y = Neg(both/0:0); z = Neg(x, ^both/0, ^both/1) -> both/1:0, y:0 | both/0, both/1",
    ),
    "names in use are avoided": (
        clean.split_identity_n,
        "both/0 = Const(); both = IdentityN(both/0); x = Neg(both) -> x:0 | ",
        "both/0 = Const(); both/0_1 = Identity(both/0); x = Neg(both/0_1:0) -> x:0 | ",
    ),
    "a branching op with its input below its name is renamed": (
        clean.rename_branches,
        "x = Const(); cond = StatelessIf(x, x, ^x); cond/x = Identity(cond:1); y = Neg(cond/x, ^cond) "
        "-> cond:1, y:0 | cond, y",
        "x = Const(); cond_1 = StatelessIf(x, x, ^x); cond/x = Identity(cond_1:1); y = Neg(cond/x, ^cond_1) "
        "-> cond_1:1, y:0 | cond_1, y",
    ),
    "the new name is free and has no input below it either": (
        clean.rename_branches,
        "x = Const(); cond_1 = Const(); cond = Case(x, cond_1); cond/x = Identity(cond); "
        "cond_2/cond_1 = Identity(cond) ->  | ",
        "x = Const(); cond_1 = Const(); cond_3 = Case(x, cond_1); cond/x = Identity(cond_3); "
        "cond_2/cond_1 = Identity(cond_3) ->  | ",
    ),
    "an input that is renamed counts by its new name": (
        clean.rename_branches,
        "x = Const(); a = If(x, x); a/x = Identity(a); b = If(x, a); b/a_1 = Identity(b) ->  | ",
        "x = Const(); a_1 = If(x, x); a/x = Identity(a_1); b_1 = If(x, a_1); b/a_1 = Identity(b_1) ->  | ",
    ),
    "other names below and other ops stay": (
        clean.rename_branches,
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
    result = clean.prune(dataclasses.replace(clean.release_results(program), control_outputs=()))
    assert [feed.node for feed in result.feeds] == ["x"]
    assert [variable.node for variable in result.variables] == ["used"]
    assert len(result.graph_def.library.function) == 0


def test_colocation_classes_outlive_their_namesake_and_follow_its_name(program_of):
    program = program_of("a = Const(); b = Neg(a); c = Neg(b) -> c:0 | ")
    for node in program.graph_def.node[1:]:
        node.attr["_class"].list.s.append(b"loc:@gone")
    nodes = {node.name: node for node in clean.prune(program).graph_def.node}
    assert nodes["b"].attr["_class"].list.s[0] == nodes["c"].attr["_class"].list.s[0] == b"loc:@b"
    program = program_of("x = Const(); cond = If(x); cond/x = Identity(cond) ->  | ")
    program.graph_def.node[2].attr["_class"].list.s.append(b"loc:@cond")
    assert list(clean.rename_branches(program).graph_def.node[2].attr["_class"].list.s) == [b"loc:@cond_1"]


def test_defaults_are_written_out_and_values_kept():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
    node = graph_def.node.add(name="product", op="MatMul", input=["a", "a"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    node.attr["transpose_b"].b = True
    before = graph_def.SerializeToString(deterministic=True)
    program = clean.default_attributes(Program(graph_def, (), ("product:0",), (), ()))
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


@pytest.mark.parametrize(
    ("floats", "copies"), [(clean.MAX_CLONED_BYTES // 4, 1), (clean.MAX_CLONED_BYTES // 4 + 1, 0)]
)
def test_copies_of_constants_have_their_value_up_to_a_size(program_of, floats, copies):
    program = program_of(f"{SHARED} -> z:0 | ")
    value = tf.make_tensor_proto(np.arange(floats, dtype=np.float32))
    program.graph_def.node[0].attr["value"].tensor.CopyFrom(value)
    constants = [node for node in clean.clone_constants(program).graph_def.node if node.op == "Const"]
    assert [node.attr["value"].tensor for node in constants] == [value] * (1 + copies)


def test_a_cycle_is_named(program_of):
    with pytest.raises(InputError, match="'p' is on or behind a cycle"):
        clean.topological_order(program_of("p = Neg(q); q = Neg(p) ->  | "))


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
    (result,) = (
        node for node in clean.bypass_loop_handles(program).graph_def.node if node.op == "ReadVariableOp"
    )
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
    assert text_of(clean.split_identity_n(program)) == (
        "a = Const(); b = Const(); custom = IdentityN(a, b); plain/0 = Identity(custom); plain/1 = Identity(b); "
        "x = Neg(plain/1:0); updated/0 = Identity(a); updated/1 = Identity(b); y = Neg(updated/0:0); "
        "z = Neg(plain/0:0) -> z:0 | x, y"  # only an update depends on `updated`
    )
