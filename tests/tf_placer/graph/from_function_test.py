"""Captured variables, stand-ins for arguments, inputs of graphs from elsewhere, and bytes of outputs."""

import functools
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from colocation.units import form_units
from tests.refused import refused
from tf_placer.graph.item import Item
from tf_placer.graph.program import tensor_bytes
from tf_placer.graph.read_function import function_name, program_of_function
from tf_placer.graph.read_graph import Input, checked_input_shapes, open_sizes, with_shapes
from tf_placer.graph.sizes import OutputSpec, output_specs


def test_a_variable_that_is_reached_twice_is_one_variable():
    weight = tf.Variable([1.0, 2.0], name="weight")

    @tf.function
    def closed_over(given):
        given.assign_add([1.0, 1.0])
        return weight.read_value()

    @tf.function
    def passed_twice(first, second):
        first.assign_add([1.0, 1.0])
        return second.read_value()

    for function, arguments in ((closed_over, [weight]), (passed_twice, [weight, weight])):
        item = Item.from_function(function, *arguments)
        assert len(item.variables) == 1
        assert item.index.op_types.count("VarHandleOp") == 1
        np.testing.assert_array_equal(item.variables[0].value, [1.0, 2.0])


def test_a_compiled_call_shares_a_device_with_the_variables_it_reads():
    weight = tf.Variable(3.0, name="weight")
    compiled = tf.function(lambda x: x * weight, jit_compile=True)
    step = tf.function(lambda x: compiled(x) + 1.0)
    item = Item.from_function(step, tf.constant(1.0))
    unit_of_op = form_units(item.index).unit_of_op
    call = next(op for op, kind in enumerate(item.index.op_types) if "PartitionedCall" in kind)
    assert unit_of_op[call] == unit_of_op[item.index.id_of_name["weight"]]


@tf.function
def scaled(x, parts):
    return x * parts["scale"] + parts["shift"]


def test_a_tensor_spec_stands_for_zeros_of_its_shape():
    spec = tf.TensorSpec([2, 3])
    parts = {"scale": tf.TensorSpec([]), "shift": tf.TensorSpec([3])}
    of_specs = program_of_function(scaled, spec, parts)
    of_zeros = program_of_function(scaled, tf.zeros([2, 3]), {"scale": tf.zeros([]), "shift": tf.zeros([3])})
    assert of_specs.graph_def == of_zeros.graph_def
    assert [feed.shape for feed in of_specs.feeds] == [(2, 3), (), (3,)]
    assert not any(feed.value.any() for feed in of_specs.feeds)


def test_a_tensor_spec_of_every_type():
    for dtype in (tf.float32, tf.bfloat16, tf.int8, tf.bool, tf.string, tf.complex64):
        program = program_of_function(tf.function(tf.identity), tf.TensorSpec([2], dtype))
        assert program.feeds[0].dtype == dtype


@pytest.mark.parametrize(
    "spec",
    [
        tf.TensorSpec([None, 3]),
        tf.TensorSpec(None),
        tf.TensorSpec([], tf.variant),
        tf.SparseTensorSpec([2, 3]),
        tf.data.DatasetSpec(tf.TensorSpec([])),
    ],
)
def test_a_spec_that_leaves_something_open_is_named(spec):
    with refused(r"example_args\[1\] is .*; give a tensor, or a tf.TensorSpec with every size"):
        program_of_function(scaled, tf.zeros([2, 3]), {"scale": tf.zeros([]), "shift": spec})


def test_what_tf_function_can_trace_is_traced():
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.v = tf.Variable([1.0, 2.0])

        def call(self, x):
            return x * self.v

    layer = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    for fn, shape in ((Model().call, (2,)), (layer, (5, 3)), (lambda x: x, ())):
        assert program_of_function(fn, tf.TensorSpec(shape)).feeds[0].shape == shape


def test_names_are_those_that_users_gave():
    concrete = scaled.get_concrete_function(
        tf.TensorSpec([3]), {"scale": tf.TensorSpec([]), "shift": tf.TensorSpec([])}
    )
    assert function_name(scaled) == function_name(concrete) == "scaled"
    assert function_name(keras.Sequential(name="net")) == "net"
    with refused("function 'scaled' takes 3 tensors, but example_args hold 1"):
        program_of_function(concrete, tf.zeros([3]))


X = Input("x:0", tf.float32, (-1, 3), "rows")
Z = Input("z:0", tf.float32, None)


def graph_of(build) -> tf.compat.v1.MetaGraphDef:
    with tf.Graph().as_default():
        build()
        return tf.compat.v1.train.export_meta_graph()


@pytest.mark.parametrize("name", ["x", "x:0", "rows"])
def test_a_shape_is_given_by_any_name_of_an_input(name):
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
def test_shapes_as_python_gives_them(given, expected):
    assert checked_input_shapes(given) == expected


def test_what_was_taken_for_dimensions_of_any_size_is_told():
    assert open_sizes([Input("x:0", tf.float32, (2, 3))], 32) == ""
    assert "of any size ('rows') were taken as 32: give the --batch_size" in open_sizes([X], 32)


def test_a_graph_of_any_rank_is_placed_as_large_as_is_said():
    for shape in (None, (None, None)):
        fed = functools.partial(tf.compat.v1.placeholder, tf.float32, shape, name="x")
        meta_graph = graph_of(lambda fed=fed: tf.matmul(fed(), tf.ones([3, 2]), name="y"))
        item = Item.from_meta_graph(meta_graph, ["y:0"], input_shapes={"x": [7, 3]})
        assert [feed.shape for feed in item.feeds] == [(7, 3)]
        assert item.estimated_sizes == {}


def test_a_scalar_of_an_old_graph_may_be_of_any_shape():
    meta_graph = graph_of(lambda: tf.nn.relu(tf.compat.v1.placeholder(tf.float32, (), name="x"), name="y"))
    meta_graph.graph_def.versions.producer = 22
    assert Item.from_meta_graph(meta_graph, ["y:0"]).feeds[0].shape == ()
    meta_graph.graph_def.versions.producer = 21
    with refused("input 'x' has unknown rank; say its shape with --input_shape=x:"):
        Item.from_meta_graph(meta_graph, ["y:0"])
    item = Item.from_meta_graph(meta_graph, ["y:0"], input_shapes={"x": [2, 3]})
    assert item.feeds[0].shape == (2, 3)


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


def test_an_input_that_a_function_does_not_read_may_be_of_any_rank(rated):
    assert [feed.shape for feed in Item.from_saved_model(rated).feeds] == [(32, 3)]
    with refused("input 'rate' has unknown rank; say its shape with --input_shape=rate:"):
        Item.from_saved_model(rated, "reading")


def test_a_model_of_any_rank_is_exported_with_its_plan(rated, tmp_path):
    shapes = {"rate": (4, 4)}
    item = Item.from_saved_model(rated, "reading", input_shapes=shapes)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.logical(1))
    placement = tf_placer.Placement(problem, problem.everything_on(0))
    out = tmp_path / "out"
    tf_placer.export_saved_model(rated, out, placement, "reading", input_shapes=shapes)
    served = tf_placer.load_saved_model(out).signatures["reading"]
    # Any other shape is served, too: 3 x 2.
    assert served(x=tf.ones([1, 3]), rate=tf.fill([5], 2.0))["y"].numpy().tolist() == [[6.0, 6.0]]


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((2, 3), tf.float32, 24),
        ((), tf.int64, 8),
        ((0, 5), tf.float32, 0),
        ((3,), tf.bool, 3),
        ((3,), tf.bfloat16, 6),
        ((3,), tf.string, 48),  # 16 bytes an element
        ((), tf.resource, 0),
        ((4,), tf.variant, 0),
    ],
)
def test_bytes(shape, dtype, expected):
    assert tensor_bytes(shape, dtype) == expected


def specs_of(graph: tf.Graph) -> dict[str, tuple[OutputSpec, ...]]:
    graph_def = graph.as_graph_def()
    return dict(zip([node.name for node in graph_def.node], output_specs(graph_def), strict=True))


def test_shapes_that_only_the_value_tells():
    with tf.Graph().as_default() as graph:
        tf.raw_ops.BroadcastGradientArgs(s0=[4, 1], s1=[4, 3], name="args")
    # The first operand was broadcast along axis 1, the second along none.
    assert [spec.shape for spec in specs_of(graph)["args"]] == [(1,), (0,)]


def test_only_what_is_not_known_is_inferred():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [6, 4], name="x")
        halves = tf.split(x, 2, name="halves")
        tf.reshape(halves[1], tf.constant([2, 6], name="shape"), name="flat")
    graph_def, specs = graph.as_graph_def(), specs_of(graph)
    known = {name: specs[name] for name in ("x", "halves", "shape")}
    assert output_specs(graph_def, known) == tuple(specs.values())
    known["halves"] = (OutputSpec.of((3, 4), tf.float32), OutputSpec.of((3, 5), tf.float32))
    with refused("flat"):
        output_specs(graph_def, known)
    next(node for node in graph_def.node if node.name == "halves").op = "NoSuchOp"  # which nobody looks at
    known["halves"] = specs["halves"]
    assert output_specs(graph_def, known) == tuple(specs.values())


def test_empty_graph():
    assert output_specs(tf.compat.v1.GraphDef()) == ()


def test_wrong_graph_is_one_line():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="x", op="NoSuchOp")
    with refused(r"TensorFlow does not accept the graph.*NoSuchOp"):
        output_specs(graph_def)


def test_what_batch_normalization_keeps_for_its_gradient_counts_nothing():
    with tf.Graph().as_default() as graph:
        x, scale = tf.zeros([2, 4, 4, 3]), tf.ones([3])
        tf.raw_ops.FusedBatchNormV3(
            x=x, scale=scale, offset=scale, mean=scale, variance=scale, is_training=False, name="normalized"
        )
    assert [spec.num_bytes for spec in specs_of(graph)["normalized"]] == [4 * 96, 12, 12, 12, 12, 0]


def test_a_tensor_that_no_device_holds():
    with tf.Graph().as_default() as graph:
        tf.fill([2**20, 2**20, 2**20], 0.0, name="filled")
    with refused(r"'filled' .* is larger than any device"):
        output_specs(graph.as_graph_def())
