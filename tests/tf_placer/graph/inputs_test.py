"""What graphs from elsewhere need of their inputs: shapes, and nothing of those that no fetch needs."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.read_graph import Input, checked_input_shapes, open_sizes, with_shapes

X = Input("x:0", tf.float32, (-1, 3), "rows")
Z = Input("z:0", tf.float32, None)


def graph_of(build) -> tf.compat.v1.MetaGraphDef:
    with tf.Graph().as_default():
        build()
        return tf.compat.v1.train.export_meta_graph()


def product(shape: tuple[int | None, ...] | None) -> None:
    x = tf.compat.v1.placeholder(tf.float32, shape, name="x")
    tf.matmul(x, tf.ones([3, 2]), name="y")


@pytest.mark.parametrize("name", ["x", "x:0", "rows"])
def test_a_shape_is_given_by_any_name_of_an_input(name: str) -> None:
    assert [one.shape for one in with_shapes([X, Z], {name: (8, 3)})] == [(8, 3), None]
    # What is left open is as the graph says.
    assert with_shapes([X], {name: (5, -1)})[0].shape == (5, 3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"x": [8, None], "z": ()}, {"x": (8, -1), "z": ()}),
        ({"x": tf.TensorShape([None, 3])}, {"x": (-1, 3)}),
        ({"x": (np.int64(4), -1)}, {"x": (4, -1)}),
        (None, {}),
    ],
)
def test_shapes_as_python_gives_them(given: object, expected: dict) -> None:
    assert checked_input_shapes(given) == expected


def test_what_was_taken_for_dimensions_of_any_size_is_told() -> None:
    assert open_sizes([Input("x:0", tf.float32, (2, 3))], 32) == ""
    assert "of any size ('rows') were taken as 32: give the --batch_size" in open_sizes([X], 32)


def test_a_graph_of_any_rank_is_placed_as_large_as_is_said() -> None:
    for shape in (None, (None, None)):
        item = Item.from_meta_graph(
            graph_of(lambda shape=shape: product(shape)), ["y:0"], input_shapes={"x": [7, 3]}
        )
        assert [feed.shape for feed in item.feeds] == [(7, 3)]
        assert item.estimated_sizes == {}


@pytest.mark.parametrize(("producer", "shape"), [(21, None), (22, ())])
def test_a_scalar_of_an_old_graph_may_be_of_any_shape(producer: int, shape: tuple[int, ...] | None) -> None:
    meta_graph = graph_of(lambda: tf.nn.relu(tf.compat.v1.placeholder(tf.float32, (), name="x"), name="y"))
    meta_graph.graph_def.versions.producer = producer
    if shape is None:
        with pytest.raises(
            InputError, match="input 'x' has unknown rank; say its shape with --input_shape=x:"
        ):
            Item.from_meta_graph(meta_graph, ["y:0"])
        given = {"x": [2, 3]}
        assert Item.from_meta_graph(meta_graph, ["y:0"], input_shapes=given).feeds[0].shape == (2, 3)
    else:
        assert Item.from_meta_graph(meta_graph, ["y:0"]).feeds[0].shape == shape


class Rated(tf.Module):
    """A signature whose function takes a tensor of any rank and does not read it, and one that does."""

    def __init__(self) -> None:
        self.weights = tf.Variable(tf.ones([3, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x"), tf.TensorSpec(None, name="rate")])
    def ignoring(self, x: tf.Tensor, rate: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x @ self.weights}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x"), tf.TensorSpec(None, name="rate")])
    def reading(self, x: tf.Tensor, rate: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x @ self.weights * tf.reduce_mean(rate)}


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("rated") / "model"
    module = Rated()
    signatures = {"serving_default": module.ignoring, "reading": module.reading}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


def test_an_input_that_a_function_does_not_read_may_be_of_any_rank(rated: pathlib.Path) -> None:
    assert [feed.shape for feed in Item.from_saved_model(rated).feeds] == [(32, 3)]
    with pytest.raises(
        InputError, match="input 'rate' has unknown rank; say its shape with --input_shape=rate:"
    ):
        Item.from_saved_model(rated, "reading")


def test_a_model_of_any_rank_is_exported_with_its_plan(rated: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shapes = {"rate": (4, 4)}
    item = Item.from_saved_model(rated, "reading", input_shapes=shapes)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.logical(1))
    placement = tf_placer.Placement(problem, problem.everything_on(0))
    out = tmp_path / "out"
    tf_placer.export_saved_model(rated, out, placement, "reading", input_shapes=shapes)
    served = tf_placer.load_saved_model(out).signatures["reading"]
    # Any other shape is served, too: 3 x 2.
    assert served(x=tf.ones([1, 3]), rate=tf.fill([5], 2.0))["y"].numpy().tolist() == [[6.0, 6.0]]
