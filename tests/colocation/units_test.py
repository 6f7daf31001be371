"""Units: partition, numbering, explanations, linear work."""

import numpy as np
import pytest
import tensorflow as tf

from colocation.constraints import RULES
from colocation.op_facts import index_graph
from colocation.units import extend_units, form_units, name_scope
from tests.colocation.random_graphs import random_graph

tf1 = tf.compat.v1


def chain_of_variables(num_variables: int) -> tf1.GraphDef:
    """For each variable: handle, read, constant, update; 4 ops, of which 3 share a unit."""
    graph_def = tf1.GraphDef()
    for i in range(num_variables):
        handle = graph_def.node.add(name=f"v{i}", op="VarHandleOp")
        handle.attr["dtype"].type = tf.float32.as_datatype_enum
        read = graph_def.node.add(name=f"read{i}", op="ReadVariableOp", input=[f"v{i}"])
        read.attr["dtype"].type = tf.float32.as_datatype_enum
        constant = graph_def.node.add(name=f"c{i}", op="Const")
        constant.attr["dtype"].type = tf.float32.as_datatype_enum
        update = graph_def.node.add(name=f"update{i}", op="AssignAddVariableOp", input=[f"v{i}", f"c{i}"])
        update.attr["dtype"].type = tf.float32.as_datatype_enum
    return graph_def


def test_units_are_numbered_by_their_smallest_op():
    units = form_units(chain_of_variables(2))
    # ops v0 read0 c0 update0 v1 read1 c1 update1
    np.testing.assert_array_equal(units.unit_of_op, [0, 0, 1, 0, 2, 2, 3, 2])
    assert units.unit_of_op.dtype == np.int32
    assert units.num_units == 4
    np.testing.assert_array_equal(units.members(0), [0, 1, 3])
    np.testing.assert_array_equal(np.diff(units.member_offset), [3, 1, 3, 1])


def test_empty_graph_and_one_op():
    assert form_units(tf1.GraphDef()).num_units == 0
    one = tf1.GraphDef()
    one.node.add(name="a", op="NoOp")
    assert form_units(one).num_units == 1


@pytest.mark.parametrize("seed", range(30))
def test_partition_is_the_closure_of_all_merges(seed: int):
    """Against flooding: spread the smallest op id over all merges until nothing changes."""
    index = index_graph(random_graph(seed).graph_def)
    units = form_units(index)
    smallest = list(range(index.num_ops))
    merges = [(m.op_a, m.op_b) for rule in RULES for m in rule(index)]
    for _ in range(index.num_ops):
        for a, b in merges:
            smallest[a] = smallest[b] = min(smallest[a], smallest[b])
    expected = np.unique(smallest, return_inverse=True)[1]
    np.testing.assert_array_equal(units.unit_of_op, expected, err_msg=f"seed {seed}")
    # The kept merges are a spanning forest: one less than ops in each unit.
    assert len(units.merges) == index.num_ops - units.num_units


def test_deterministic():
    first, second = (form_units(random_graph(7).graph_def) for _ in range(2))
    np.testing.assert_array_equal(first.unit_of_op, second.unit_of_op)
    assert first.merges == second.merges


def test_why_gives_the_chain():
    units = form_units(chain_of_variables(1))
    chain = units.why(1, 3)  # read0 - v0 - update0
    assert [(m.op_a, m.op_b) for m in chain] == [(0, 1), (0, 3)]
    assert chain[1].reason == "update0 takes a resource handle from v0"
    assert units.why(1, 1) == ()
    with pytest.raises(ValueError, match="different units"):
        units.why(0, 2)


@pytest.mark.parametrize("seed", range(10))
def test_why_is_a_path_for_every_pair_of_the_largest_unit(seed: int):
    units = form_units(random_graph(seed).graph_def)
    members = units.members(int(np.argmax(np.diff(units.member_offset)))).tolist()
    for target in members:
        at = members[0]
        for merge in units.why(at, target):
            assert at in (merge.op_a, merge.op_b), f"seed {seed}"
            at = merge.op_b if at == merge.op_a else merge.op_a
        assert at == target, f"seed {seed}"


@pytest.mark.medium
def test_work_is_linear_up_to_100k_ops():
    steps = {n: form_units(chain_of_variables(n // 4)).union_find_steps / n for n in (1_000, 10_000, 100_000)}
    # For 4 ops: two unions of two finds, four labels: 8 finds, and a step more for each that is
    # no root yet or any more, at most one a find: between 2 and 4 steps an op at every size.
    assert all(2.0 <= per_op <= 4.0 for per_op in steps.values()), steps
    assert steps[100_000] == pytest.approx(steps[1_000], rel=0.01)


def test_input_is_left_alone():
    graph_def = random_graph(3).graph_def
    before = graph_def.SerializeToString(deterministic=True)
    form_units(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_units_that_are_there_are_extended_and_never_split():
    index = index_graph(chain_of_variables(3))  # v0 read0 c0 update0 v1 ...
    given = np.array([9, 9, 4, 4, *range(10, 18)])
    units = extend_units(index, given, [name_scope(r"^(c)")])
    # c0, c1 and c2 are ops 2, 6 and 10; update0 is given as one unit with c0. No hard rule is asked.
    np.testing.assert_array_equal(units.unit_of_op, [0, 0, 1, 1, 2, 3, 1, 4, 5, 6, 1, 7])
    assert [merge.rule for merge in units.why(3, 10)] == ["given", "name_scope"]
    np.testing.assert_array_equal(extend_units(index, given, []).unit_of_op[:5], [0, 0, 1, 1, 2])
    with pytest.raises(
        ValueError, match="unit_of_op has 11 entries, but the graph has 12 ops; give one for each"
    ):
        extend_units(index, given[1:], [])
