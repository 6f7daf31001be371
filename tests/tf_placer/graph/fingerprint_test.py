"""What counts as the same graph."""

import copy

import pytest

from tf_placer.graph.program import fingerprint


@pytest.fixture
def graph_def(program_of):
    return program_of(
        """
        a = Const()
        b = Const()
        x = SubV2(a, b)
        y = Neg(x, ^b)
        """
    ).graph_def


def digest(graph_def):
    return fingerprint(graph_def, ["y:0"], ["x"])


def test_notes_devices_and_shared_names_do_not_count(graph_def):
    expected = digest(graph_def)
    node = graph_def.node[2]
    node.attr["_note"].s = b"7"
    node.attr["shared_name"].s = b"s"
    node.device = "/device:GPU:0"
    assert digest(graph_def) == expected


def test_names_do_not_count(graph_def):
    expected = digest(graph_def)
    renamed = copy.deepcopy(graph_def)
    renamed.node[0].name = "other"
    renamed.node[2].input[0] = "other:0"
    assert digest(renamed) == expected


def exchange_operands(graph_def):
    graph_def.node[2].input[:] = ["b", "a"]


def drop_control(graph_def):
    del graph_def.node[3].input[1:]


def change_op(graph_def):
    graph_def.node[3].op = "Exp"


def change_constant(graph_def):
    graph_def.node[0].attr["value"].tensor.float_val[:] = [2.5]


def colocate(graph_def):
    graph_def.node[3].attr["_class"].list.s.append(b"loc:@x")


@pytest.mark.parametrize("change", [exchange_operands, drop_control, change_op, change_constant, colocate])
def test_a_change_counts(graph_def, change):
    expected = digest(graph_def)
    change(graph_def)
    assert digest(graph_def) != expected


def test_fetches_and_side_effects_count(graph_def):
    digests = {
        fingerprint(graph_def, ["y:0"], ["x"]),
        fingerprint(graph_def, ["x:0"], ["x"]),
        fingerprint(graph_def, ["y:0"], ["y"]),
        fingerprint(graph_def, ["y:0"], []),
    }
    assert len(digests) == 4
    # TensorFlow writes output 0 or leaves it out.
    assert fingerprint(graph_def, ["y"], ["x"]) in digests
