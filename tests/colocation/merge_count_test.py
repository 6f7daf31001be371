"""Merges are counted: a rule says one thing of each op or edge, never one of each pair of ops."""

from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from colocation.constraints import RULES, Merge
from colocation.op_facts import GraphIndex, index_graph
from colocation.units import attach_constants, form_units

tf1 = tf.compat.v1

SIZE = 100


def crowd(size: int) -> tf1.GraphDef:
    """Many ops around a few: ``size`` of each kind that a rule ties, all to the same op, frame or name.

    A rule that paired the ops which meet there would yield about size * size / 2 merges.
    """
    graph_def = tf1.GraphDef()

    def add(name: str, op: str, *inputs: str, **types: int) -> None:
        node = graph_def.node.add(name=name, op=op, input=inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype

    add("one", "Const", dtype=types_pb2.DT_FLOAT)
    add("common", "Const", dtype=types_pb2.DT_FLOAT)
    add("yes", "Const", dtype=types_pb2.DT_BOOL)
    add("number", "Const", dtype=types_pb2.DT_INT64)
    add("anchor", "NoOp")
    add("handle", "VarHandleOp", dtype=types_pb2.DT_FLOAT)
    add("buffer", "VariableV2", dtype=types_pb2.DT_FLOAT)
    add("dataset", "RangeDataset", "number", "number", "number")
    for i in range(size):
        add(f"constant{i}", "Const", dtype=types_pb2.DT_FLOAT)
        add(f"tied{i}", "AddV2", f"constant{i}", "common", T=types_pb2.DT_FLOAT)
        # One name of an op that is there and one of an op that is not.
        graph_def.node[-1].attr["_class"].list.s.extend([b"loc:@anchor", b"loc:@gone"])
        add(f"read{i}", "ReadVariableOp", "handle", dtype=types_pb2.DT_FLOAT)
        add(f"pass{i}", "IdentityN", "handle", "handle")
        graph_def.node[-1].attr["T"].list.type.extend([types_pb2.DT_RESOURCE] * 2)
        add(f"assign{i}", "Assign", "buffer", "one", T=types_pb2.DT_FLOAT)
        add(f"value{i}", "Identity", "buffer", T=types_pb2.DT_FLOAT)
        add(f"both{i}", "ConcatenateDataset", "dataset", "dataset")
        add(f"switch{i}", "Switch", "one", "yes", T=types_pb2.DT_FLOAT)
        for name, source, frame in ((f"enter{i}", "one", b"loop"), (f"inner{i}", f"enter{i}", b"inner")):
            add(name, "Enter", source, T=types_pb2.DT_FLOAT)
            graph_def.node[-1].attr["frame_name"].s = frame
        add(f"leave{i}", "Exit", f"inner{i}", T=types_pb2.DT_FLOAT)
        add(f"exit{i}", "Exit", f"leave{i}", T=types_pb2.DT_FLOAT)
    return graph_def


def attached_constants(index: GraphIndex) -> Iterator[Merge]:
    yield from attach_constants(index, form_units(index))


def pairs_of_one_class(index: GraphIndex) -> Iterator[Merge]:
    """What no rule may do."""
    tied = [op for op, name in enumerate(index.names) if name.startswith("tied")]
    for position, a in enumerate(tied):
        for b in tied[:position]:
            yield Merge(a, b, "pairs_of_one_class", "")


def check_linear(rule: Callable[[GraphIndex], Iterator[Merge]]) -> None:
    counts = []
    for size in (SIZE, 2 * SIZE, 3 * SIZE):
        index = index_graph(crowd(size))
        counts.append(sum(1 for _ in rule(index)))
        limit = index.num_ops + len(index.data_edges) + len(index.control_edges)
        assert counts[-1] <= limit, f"{counts[-1]} merges of {limit} ops and edges"
    assert counts[0] >= SIZE, "the graph gives this rule nothing to say"
    # As many more for the third hundred as for the second.
    assert counts[2] - counts[1] == counts[1] - counts[0], counts


@pytest.mark.parametrize("rule", [*RULES, attached_constants], ids=lambda rule: rule.__name__)
def test_a_rule_yields_no_more_merges_than_there_are_ops_and_edges(rule: Callable) -> None:
    check_linear(rule)


def test_a_rule_that_pairs_what_meets_in_a_name_would_be_found() -> None:
    with pytest.raises(AssertionError, match="4950 merges of"):
        check_linear(pairs_of_one_class)


def test_union_find_work_is_linear_where_many_ops_meet() -> None:
    steps = [form_units(crowd(size), [attach_constants]).union_find_steps for size in (SIZE, 2 * SIZE)]
    assert steps[1] == pytest.approx(2 * steps[0], rel=0.02)


def test_all_that_meets_is_one_unit() -> None:
    units = form_units(crowd(SIZE))
    index = index_graph(crowd(SIZE))
    unit_of = {name: int(units.unit_of_op[op]) for op, name in enumerate(index.names)}
    for kind, centre in (
        ("tied", "anchor"),
        ("read", "handle"),
        ("pass", "handle"),
        ("assign", "buffer"),
        ("value", "buffer"),
        ("both", "dataset"),
        ("switch", "one"),
        ("inner", "enter0"),
    ):
        assert {unit_of[f"{kind}{i}"] for i in range(SIZE)} == {unit_of[centre]}, kind
