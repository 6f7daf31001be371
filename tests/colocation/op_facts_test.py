"""The table of op facts names what TensorFlow has, and means what it says."""

import pytest
from tensorflow.python.framework import op_def_registry

from colocation import op_facts
from colocation.op_facts import FACTS, having, values

# Registered in C++ alone.
_OF_THE_RUNTIME = {"_Arg", "_Retval", "_SwitchN"}


def test_every_op_type_exists_in_tensorflow():
    op_types = {op_type for fact in FACTS for op_type in values(fact)}
    unknown = {op_type for op_type in op_types if op_def_registry.get(op_type) is None}
    assert unknown <= _OF_THE_RUNTIME


def test_every_fact_is_said_of_some_op_type():
    assert all(having(fact) for fact in FACTS)


def test_an_op_type_stands_once():
    with pytest.raises(ValueError, match="'Add' has two rows"):
        op_facts._parsed("loop | Add\nbranch | Sub Add")


def test_lines_of_op_types_go_on_with_the_row_above():
    parsed = op_facts._parsed("# loops\nloop view=1 | A B\n  C\n\nbranch | D")
    assert parsed["loop"] == {"A": "", "B": "", "C": ""}
    assert parsed["view"] == {"A": "1", "B": "1", "C": "1"}
    assert parsed["branch"] == {"D": ""}


def test_an_unknown_fact_is_an_error():
    with pytest.raises(KeyError):
        op_facts._parsed("lop | A")
    with pytest.raises(KeyError):
        having("lop")


def test_numbers_of_inputs_are_inputs_that_the_op_has():
    for fact in ("view", "puts"):
        for op_type, position in values(fact).items():
            definition = op_def_registry.get(op_type)
            if definition is not None:
                assert int(position) < len(definition.input_arg), op_type
