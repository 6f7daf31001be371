"""Two steps that give the same bits, and how far others are apart."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.runtime.audit import Audit, AuditError, Difference, SameValues, difference, step_values
from tf_placer.runtime.graph_program import process_session_config, session_config

SAME = Difference()


@pytest.mark.parametrize("config_of", [session_config, process_session_config])
def test_values_are_those_of_outputs_and_of_variables_after_one_step(config_of):
    total = tf.Variable([1.0, 2.0], name="total")

    @tf.function
    def add(x, text):
        return total.assign_add(x) * 2.0, tf.strings.upper(text)

    item = Item.from_function(add, tf.constant([10.0, 20.0]), tf.constant(["a"]), name="add")
    found = step_values("", item, item.graph_def, 60.0, config_of)
    first, second, variable = found.values()
    assert first.tolist() == [22.0, 44.0] and second.tolist() == [b"A"] and variable.tolist() == [11.0, 22.0]
    assert list(found)[2] == f"variable {item.variables[0].node!r}"
    assert difference(found, step_values("", item, item.graph_def, 60.0, config_of)) == SAME


def test_a_step_that_gives_nothing_cannot_be_compared():
    @tf.function
    def prints(x):
        tf.print("seen", x, output_stream="file:///dev/null")

    item = Item.from_function(prints, tf.constant(1.0), name="prints")
    with pytest.raises(InputError, match="gives back nothing and has no variable"):
        step_values("", item, item.graph_def, 60.0, session_config)


@pytest.mark.parametrize(
    ("one", "other", "relative"),
    [
        ([1.0, 4.0], [1.0, 4.0], 0.0),
        ([1.0, 4.0], [1.5, 4.0], 0.125),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [2.0, 1.0], math.inf),
        ([0.0], [1.0], 1.0),
        ([1, 4], [1, 2], 0.5),
        ([1 + 1j, 0], [1 + 1j, 0], 0.0),
        ([4j], [2j], 0.5),
        ([True], [False], math.inf),
        (np.array([b"a"], object), np.array([b"b"], object), math.inf),
        (np.array([b"a"], object), np.array([b"a"], object), 0.0),
        ([1.0], [1.0, 1.0], math.inf),
    ],
)
def test_a_difference_is_relative_to_the_largest_number(one, other, relative):
    found = difference({"y": np.asarray(one)}, {"y": np.asarray(other)})
    assert found == (Difference(relative, "y") if relative else SAME)


def test_other_bits_are_never_the_same_and_the_largest_difference_is_told():
    zeros = [{"x": np.array([1.0]), "y": np.array([zero])} for zero in (0.0, -0.0)]
    found = difference(*zeros)
    assert found.value == "y" and 0 < found.relative < 1e-300
    one, other = {"a": np.array([1.0]), "b": np.array([1.0])}, {"a": np.array([1.1]), "b": np.array([2.0])}
    assert difference(one, other).value == "b"


def test_an_audit_tells_which_kind_a_difference_is_of():
    apart = Difference(3.7e-4, "output 'Identity:0'")

    def audit(**found):
        return Audit(3, {}, {}, {}, SameValues(**{"repeated": SAME, "exact": SAME, "as_run": SAME} | found))

    audit(as_run=apart).check()
    assert audit(as_run=apart).summary() == (
        "3 ops where they were put; the same bits with Grappler and oneDNN off; as this process has them, 3.7e-04 of "
        "the largest number in output 'Identity:0' apart"
    )
    audit(exact=apart, repeated=apart).check()  # random numbers
    audit(exact=apart, apart=1e-3).check()  # the batch in parts
    assert (
        "3.7e-04 of the largest number in output 'Identity:0' apart with Grappler and oneDNN off: sums are in another "
        in (audit(exact=apart, apart=1e-3).summary())
    )
    assert "batch statistics are those of each part" in audit(exact=apart, apart=math.inf).summary()
    with pytest.raises(AuditError, match="DIFFERENT VALUES, more than the order of sums makes"):
        audit(exact=apart, apart=1e-4).check()
    with pytest.raises(AuditError, match=r"DIFFERENT VALUES with Grappler and oneDNN off: 3\.7e-04 of"):
        audit(exact=apart).check()
