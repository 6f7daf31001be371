"""Order by edges first, then by position, never by name."""

import pytest

from tf_placer.base.arguments import InputError
from tf_placer.graph.clean import topological_order


def test_inputs_first_and_ties_by_position(program_of):
    program = program_of(
        """
        z = Neg(b, ^y, ^c)
        y = Const()
        c = Const()
        b = Neg(c)
        """,
        fetches=["z:0"],
        control_outputs=["b", "y", "b"],
    )
    result = topological_order(program)
    assert [node.name for node in result.graph_def.node] == ["y", "c", "b", "z"]
    assert list(result.graph_def.node[3].input) == ["b", "^y", "^c"]
    assert result.control_outputs == ("y", "b")


def test_a_cycle_is_named(program_of):
    with pytest.raises(InputError, match="'p' is on or behind a cycle"):
        topological_order(program_of("p = Neg(q)\nq = Neg(p)"))


def test_an_old_style_loop_is_no_cycle(program_of):
    program = program_of(
        """
        merge = Merge(enter, next)
        enter = Enter(c)
        next = NextIteration(merge)
        c = Const()
        """
    )
    names = [node.name for node in topological_order(program).graph_def.node]
    assert names == ["c", "enter", "merge", "next"]
