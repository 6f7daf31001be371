"""Programs that have eager execution off get what others get, each in a process of its own."""

import functools
import gc

import pytest
import tensorflow as tf

from tests.logical_devices import outcomes_of
from tf_placer.base.eager import outside_functions, without_collections

OFF = ("graph", "behavior")


@functools.cache
def found(how: str, *methods: str) -> dict:
    return outcomes_of("tests.tf_placer.base.eager_process", how, *methods)


@pytest.mark.medium
@pytest.mark.parametrize("how", OFF)
@pytest.mark.parametrize(
    "methods", [("single", "tabular"), pytest.param(("auto", "hdp", "go"), marks=pytest.mark.slow)]
)
def test_all_is_as_with_eager_execution(how: str, methods: tuple[str, ...]) -> None:
    answers = dict(found(how, *methods))
    del answers["refused"]
    assert set(methods) <= set(answers)
    assert answers == found("on", *methods)
    assert answers["state"], "what was off is off again"


@pytest.mark.parametrize("how", OFF)
def test_what_has_its_value_in_a_session_is_refused_in_one_line(how: str) -> None:
    refused = found(how, "single", "tabular")["refused"]
    assert "of a graph, which has no value; give an array or a tf.TensorSpec" in refused["example"]
    assert "place that graph with Item.from_meta_graph" in refused["capture"]
    assert not any("\n" in text for text in refused.values())


def test_a_variable_made_outside_of_functions_is_none_of_theirs() -> None:
    traces = []

    @tf.function
    def traced(x: tf.Tensor) -> tf.Tensor:
        traces.append(tf.executing_eagerly())
        with outside_functions():
            made = tf.Variable(2.0)
            traces.append(tf.executing_eagerly())
            made.assign_add(1.0)
            assert float(made) == 3.0
        return x + 1.0

    assert float(traced(tf.constant(1.0))) == 2.0
    assert traced(tf.constant([1.0])).shape == (1,)  # traced again, and it may make a variable again
    assert traces == [False, True] * 2


def test_outside_of_functions_nothing_changes_where_there_is_none() -> None:
    before = tf.compat.v1.get_default_graph()
    with outside_functions():
        assert tf.executing_eagerly() and tf.compat.v1.get_default_graph() is before


def test_no_garbage_collection_begins_inside_and_they_go_on_afterwards() -> None:
    @without_collections()
    def fail() -> None:
        raise ValueError(gc.isenabled())

    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="False"):
        fail()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled(), "who switched them off finds them off"
    finally:
        gc.enable()
