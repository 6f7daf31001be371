"""Only last, pure results stop waiting, and only for what runs anyway."""

from tf_placer.graph.clean import release_results


def test_which_control_edges_go(program_of):
    program = program_of(
        """
        a = Const()
        v = VarHandleOp()
        effect = AssignVariableOp(v, a)
        unsure = AssignVariableOp(v, a)
        result = Identity(a, ^effect, ^unsure, ^all, ^some)
        all = NoOp(^effect, ^inner_all)
        inner_all = NoOp(^effect)
        some = NoOp(^effect, ^unsure)
        inner = Identity(a, ^effect)
        last = Identity(inner, ^effect)
        read = ReadVariableOp(v, ^effect)
        """,
        fetches=["result:0", "inner:0", "read:0"],
        control_outputs=["effect"],
    )
    inputs = {node.name: list(node.input) for node in release_results(program).graph_def.node}
    assert inputs["result"] == ["a", "^unsure", "^some"]  # nothing says that `unsure` runs anyway
    assert inputs["inner"] == ["a", "^effect"]  # read by another node
    assert inputs["last"] == ["inner", "^effect"]  # no result
    assert inputs["read"] == ["v", "^effect"]  # would read another value
