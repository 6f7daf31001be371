"""Functions are there, take and return what their callers say, and end."""

import pytest
from tensorflow.core.framework import function_pb2, node_def_pb2

from tf_placer.base.arguments import InputError
from tf_placer.graph.check import MAX_DEPTH, check_calls


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


def test_calls_of_calls_pass():
    check_calls([call("a", "f"), call("b", "g")], library(function("f", "g", "g"), function("g")))


def test_a_missing_function():
    with pytest.raises(InputError, match=r"node 'a' .* names function 'f', which the graph's library lacks"):
        check_calls([call("a", "f")], {})


def test_another_number_of_tensors():
    with pytest.raises(InputError, match="function 'f' takes 1 tensors and returns 2, expected 2 and 2"):
        check_calls([call("a", "f", takes=2, returns=2)], library(function("f", takes=1, returns=2)))


def test_a_loop_whose_body_returns_less_than_it_takes():
    loop = node_def_pb2.NodeDef(name="loop", op="While")
    loop.attr["T"].list.type.extend([1, 1])
    loop.attr["body"].func.name, loop.attr["cond"].func.name = "body", "cond"
    functions = library(function("body", takes=2, returns=1), function("cond", takes=2, returns=1))
    with pytest.raises(InputError, match="function 'body' takes 2 tensors and returns 1, expected 2 and 2"):
        check_calls([loop], functions)


def test_a_case_without_branches():
    case = node_def_pb2.NodeDef(name="case", op="Case")
    with pytest.raises(InputError, match=r"'case' \(Case\) has no branches"):
        check_calls([case], {})


@pytest.mark.parametrize("functions", [[function("f", "f")], [function("f", "g"), function("g", "f")]])
def test_recursion(functions):
    with pytest.raises(InputError, match="function 'f' calls itself"):
        check_calls([call("a", "f")], library(*functions))


def test_a_chain_that_is_too_deep():
    chain = [function(f"f{i}", f"f{i + 1}") for i in range(MAX_DEPTH + 1)] + [function(f"f{MAX_DEPTH + 1}")]
    check_calls([], library(*chain[1:]))
    with pytest.raises(InputError, match=f"is called through {MAX_DEPTH + 1} others"):
        check_calls([], library(*chain))


def test_few_functions_that_stand_for_too_many_nodes():
    doubling = [function(f"f{i}", f"f{i + 1}", f"f{i + 1}") for i in range(40)] + [function("f40")]
    with pytest.raises(InputError, match=r"has 2199023255551 nodes when its calls are written out"):
        check_calls([call("a", "f0")], library(*doubling))
