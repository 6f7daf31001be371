"""A NoOp stays only where it saves edges."""

from tf_placer.graph.clean import bypass_noops


def inputs(program):
    return {node.name: list(node.input) for node in program.graph_def.node}


def test_one_consumer_or_one_producer_needs_no_hub(program_of):
    program = program_of(
        """
        a = Const()
        b = Const()
        join = NoOp(^a, ^b)
        chain = NoOp(^join)
        x = Neg(a, ^chain, ^b)
        fork = NoOp(^a)
        y = Neg(b, ^fork)
        z = Neg(b, ^fork)
        nothing = NoOp()
        w = Neg(b, ^nothing)
        """,
        fetches=["x:0", "y:0", "z:0", "w:0"],
    )
    assert inputs(bypass_noops(program)) == {
        "a": [],
        "b": [],
        "x": ["a", "^a", "^b"],
        "y": ["b", "^a"],
        "z": ["b", "^a"],
        "w": ["b"],
    }


def test_a_hub_of_many_to_many_stays(program_of):
    text = """
        a = Const()
        b = Const()
        hub = NoOp(^a, ^b)
        x = Neg(a, ^hub)
        y = Neg(b, ^hub)
        """
    program = program_of(text, fetches=["x:0", "y:0"])
    assert inputs(bypass_noops(program)) == inputs(program)


def test_a_side_effect_is_what_the_noop_waited_for(program_of):
    program = program_of(
        """
        a = Const()
        b = Const()
        hub = NoOp(^a, ^b)
        x = Neg(a, ^hub)
        y = Neg(b, ^hub)
        group = NoOp(^hub, ^x)
        """,
        fetches=["y:0"],
        control_outputs=["group", "hub"],
    )
    assert bypass_noops(program).control_outputs == ("a", "b", "x")
