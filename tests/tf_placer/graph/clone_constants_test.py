"""Small shared constants are copied, large ones are not."""

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.graph.clean import MAX_CLONED_BYTES, clone_constants

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
