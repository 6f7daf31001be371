"""What counts as the same graph."""

import pytest

from tf_placer.graph.program import fingerprint


@pytest.fixture
def graph_def(program_of):
    return program_of("a = Const(); b = Const(); x = SubV2(a, b); y = Neg(x, ^b) ->  | ").graph_def


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ("x.attr['_note'].s, x.attr['shared_name'].s, x.device = b'7', b's', '/device:GPU:0'", False),
        ("a.name, x.input[0] = 'other', 'other:0'", False),
        ("x.input[:] = ['b', 'a']", True),
        ("del y.input[1:]", True),
        ("y.op = 'Exp'", True),
        ("a.attr['value'].tensor.float_val[:] = [2.5]", True),
        ("y.attr['_class'].list.s.append(b'loc:@x')", True),
    ],
)
def test_a_change_counts(graph_def, change, counts):
    before = fingerprint(graph_def, ["y:0"], ["x"])
    exec(change, {node.name: node for node in graph_def.node})
    assert (fingerprint(graph_def, ["y:0"], ["x"]) != before) == counts


def test_fetches_and_side_effects_count(graph_def):
    ends = [(["y:0"], ["x"]), (["x:0"], ["x"]), (["y:0"], ["y"]), (["y:0"], [])]
    digests = {fingerprint(graph_def, fetches, effects) for fetches, effects in ends}
    assert len(digests) == 4
    # TensorFlow writes output 0 or leaves it out.
    assert fingerprint(graph_def, ["y"], ["x"]) in digests
