"""Each part of an IdentityN is a node of its own."""

from tf_placer.graph.clean import split_identity_n


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
