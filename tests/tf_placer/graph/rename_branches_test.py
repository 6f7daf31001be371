"""No op is named as the copy of an input that TensorFlow makes for the branches."""

from tf_placer.graph.clean import rename_branches


def names(program):
    return [node.name for node in program.graph_def.node]


def test_a_branching_op_with_its_input_below_its_name_is_renamed(program_of):
    program = program_of(
        """
        x = Const()
        cond = StatelessIf(x, x, ^x)
        cond/x = Identity(cond:1)
        y = Neg(cond/x, ^cond)
        """,
        fetches=["cond:1", "y:0"],
        control_outputs=["cond", "y"],
    )
    program.graph_def.node[3].attr["_class"].list.s.append(b"loc:@cond")
    before = program.graph_def.SerializeToString(deterministic=True)
    renamed = rename_branches(program)
    assert program.graph_def.SerializeToString(deterministic=True) == before
    assert names(renamed) == ["x", "cond_1", "cond/x", "y"]
    assert [list(node.input) for node in renamed.graph_def.node] == [
        [],
        ["x", "x", "^x"],
        ["cond_1:1"],
        ["cond/x", "^cond_1"],
    ]
    assert list(renamed.graph_def.node[3].attr["_class"].list.s) == [b"loc:@cond_1"]
    assert renamed.fetches == ("cond_1:1", "y:0")
    assert renamed.control_outputs == ("cond_1", "y")


def test_the_new_name_is_free_and_has_no_input_below_it_either(program_of):
    program = program_of(
        """
        x = Const()
        cond_1 = Const()
        cond = Case(x, cond_1)
        cond/x = Identity(cond)
        cond_2/cond_1 = Identity(cond)
        """
    )
    assert names(rename_branches(program))[2] == "cond_3"


def test_an_input_that_is_renamed_counts_by_its_new_name(program_of):
    program = program_of(
        """
        x = Const()
        a = If(x, x)
        a/x = Identity(a)
        b = If(x, a)
        b/a_1 = Identity(b)
        """
    )
    assert names(rename_branches(program)) == ["x", "a_1", "a/x", "b_1", "b/a_1"]


def test_other_names_below_and_other_ops_stay(program_of):
    program = program_of(
        """
        x = Const()
        cond = If(x, x)
        cond/Identity = Identity(cond)
        y = Neg(x)
        y/x = Identity(y)
        """
    )
    assert rename_branches(program) is program
