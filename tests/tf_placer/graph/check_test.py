"""A damaged graph is refused in one line that names the node or function; a good one passes as it is."""

import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from tf_placer.base.arguments import InputError
from tf_placer.graph.check import MAX_DEPTH, check_calls, check_graph, is_tensor_name


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
    ],
)
def test_damage_to_the_main_graph(graph_def, damage, message):
    damage(graph_def)
    with pytest.raises(InputError, match=message) as error:
        check_graph(graph_def)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.node_def.add(name="x", op="NoOp"), "two of argument or node 'x'"),
        (
            lambda f: setattr(
                f.node_def.add(name="n", op="Identity", input=["nowhere"]).attr["T"], "type", 1
            ),
            "'nowhere'",
        ),
        (
            lambda f: f.ret.update({f.signature.output_arg[0].name: "nowhere:out:0"}),
            "result .* comes from nowhere",
        ),
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
