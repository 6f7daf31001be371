"""A plan of a function's batch in parts is applied to the function as any plan is."""

import pathlib
import tempfile
import warnings
from collections.abc import Sequence

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES
from tests.tf_placer.rewrite.placing import are_close, refusal
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.placed_function import placed_function
from tf_placer.rewrite.rewrite import apply_placement, place_meta_graph
from tf_placer.rewrite.saved_model import export_saved_model
from tf_placer.transform.split.split_batch import split

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact=True)]


def plan_of(
    item: Item, parts: int, batch_statistics: str = "whole", kept_whole: Sequence[str] = ()
) -> Placement:
    """A random legal plan of a program with its batch in parts."""
    problem = analytic_problem(split(item, parts, batch_statistics, kept_whole), Cluster.logical(NUM_DEVICES))
    row = np.random.default_rng(parts).integers(NUM_DEVICES, size=problem.num_units)
    return Placement(problem, problem.legalized(row[np.newaxis])[0])


class Step(tf.Module):
    """A training step of two layers, with outputs for each example and a loss."""

    def __init__(self) -> None:
        super().__init__()
        tf.random.set_seed(0)
        self.first = tf.Variable(tf.random.stateless_normal([6, 8], [1, 2]))
        self.second = tf.Variable(tf.random.stateless_normal([8, 3], [3, 4]))

    @tf.function
    def __call__(self, x, y):
        with tf.GradientTape() as tape:
            logits = tf.nn.relu(x @ self.first) @ self.second
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        weights = [self.first, self.second]
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss, "logits": logits}


def examples(count: int) -> tuple[tf.Tensor, tf.Tensor]:
    numbers = np.random.default_rng(count)
    return (
        tf.constant(numbers.normal(size=[count, 6]), tf.float32),
        tf.constant(numbers.integers(3, size=[count])),
    )


def test_outputs_and_updates():
    """Also of a batch that the parts do not divide."""
    for parts, count in ((2, 8), (3, 8), (4, 4)):
        one, other, given = Step(), Step(), examples(count)
        plan = plan_of(Item.from_function(other.__call__, *given), parts)
        placed = placed_function(other.__call__, plan, *given)
        for _ in range(3):
            assert are_close(one(*given), placed(*given))
        assert are_close([one.first, one.second], [other.first, other.second])
        assert len({op.device for op in placed.graph.get_operations() if op.device}) > 1


def products(item: Item) -> list[str]:
    return [
        name for name, kind in zip(item.index.names, item.index.op_types, strict=True) if kind == "MatMul"
    ]


IN_PARTS = "is for this graph with a batch of 8 in 2 parts; build the problem of tf_placer.split(item, 2"


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (slice(0, 0), IN_PARTS),
        *(
            (kept, "kept_whole, recomputed, parked) with the ops")
            for kept in (slice(0, 1), slice(1, None), slice(0, None))
        ),
    ],
)
def test_a_plan_file_with_some_ops_kept_whole(kept, told, tmp_path):
    one, other, given = Step(), Step(), examples(8)
    item = Item.from_function(other.__call__, *given)
    plan, path = plan_of(item, 2, kept_whole=products(item)[kept]), tmp_path / "placement.json"
    plan.save(path)
    again = Placement.load(path, plan.problem)
    assert told in refusal(lambda: Placement.load(path, analytic_problem(item, plan.problem.cluster)))
    graph = apply_placement(item, again)
    assert {node.name: node.device for node in graph.node} == plan.device_names
    assert are_close(one(*given), placed_function(other.__call__, again, *given)(*given))
    assert are_close([one.first, one.second], [other.first, other.second])


def test_another_batch_or_graph_is_refused_and_nothing_moves():
    step, given = Step(), examples(8)
    plan = plan_of(Item.from_function(step.__call__, *given), 2)
    before = step.first.device
    of_batch = refusal(lambda: placed_function(step.__call__, plan, *examples(6)))
    of_graph = refusal(lambda: placed_function(tf.function(lambda x: x @ step.first), plan, given[0]))
    says = "with a batch of 8 in 2 parts"
    assert all(says in one and "another graph or batch" in one for one in (of_batch, of_graph))
    assert step.first.device == before


def test_examples_of_any_number():
    """Traced for any batch, a plan of parts runs its own; calls of other sizes run as the function does."""
    weight, calls = tf.Variable(tf.ones([3, 2])), tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2])])
    def forward(x, y):
        calls.assign_add(1)
        rows = tf.cast(tf.shape(y)[0], tf.float32)
        return {"rows": tf.nn.relu(x[:5] @ weight) * rows + tf.reduce_mean(y), "nothing": None}, tf.shape(x)[
            0
        ]

    x, y = tf.random.stateless_normal([4, 3], [1, 2]), tf.random.stateless_normal([4, 2], [3, 4])
    placed = placed_function(forward, plan_of(Item.from_function(forward, x, y), 2), x, y)
    for rows, beside in ((4, 4), (6, 6), (4, 1), (1, 4), (9, 9), (2, 2)):
        given = [tf.random.stateless_normal(shape, [1, 2]) for shape in ([rows, 3], [beside, 2])]
        gradients = []
        for function in (forward, placed):
            before = calls.numpy()
            with tf.GradientTape() as tape:
                outputs = function(*given)
                loss = tf.reduce_sum(outputs[0]["rows"] ** 2)
            gradients.append([outputs[0]["rows"], outputs[1], tape.gradient(loss, weight)])
            assert calls.numpy() == before + 1
            assert outputs[0]["nothing"] is None
        assert are_close(*gradients)


def test_statistics_of_parts():
    """Of each part, where the plan was made so, in a Keras model."""
    x = tf.random.stateless_normal([8, 4], [1, 2])
    layer = keras.layers.BatchNormalization()
    layer.build([None, 4])
    step = tf.function(lambda x: layer(x, training=True))
    item = Item.from_function(step, x)
    expected = step(x)
    of_parts = tf.concat([step(x[:4]), step(x[4:])], 0)
    own = placed_function(step, plan_of(item, 2, "part"), x)(x)
    assert are_close(expected, placed_function(step, plan_of(item, 2), x)(x))
    assert are_close(of_parts, own)
    assert not are_close(expected, own)


def test_a_saved_model():
    """A signature with its batch in parts answers as before; what reads its variables is named."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
    model.build([None, 5])
    x = np.random.default_rng(0).normal(size=[6, 5]).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder) / "model", pathlib.Path(folder) / "placed"
        model.export(source, verbose=False)
        plan = plan_of(Item.from_saved_model(source, "serving_default", 6), 2)
        of_batch = refusal(lambda: export_saved_model(source, target, plan, batch_size=4))
        was_written = target.exists()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            export_saved_model(source, target, plan, batch_size=6)
        loaded = load_saved_model(target)
        found = next(iter(loaded.signatures["serving_default"](tf.constant(x)).values()))
        by_object = loaded.serve(tf.constant(x))
        of_others = next(iter(loaded.signatures["serving_default"](tf.constant(x[:5])).values()))
    assert are_close(model(x), found)
    assert are_close(model(x), by_object)
    assert are_close(model(x[:5]), of_others)
    assert "with a batch of 6 in 2 parts" in of_batch
    assert "give batch_size=6, or" in of_batch
    assert not was_written
    assert any("serve run unplaced" in str(one.message) for one in told)


class Served(tf.Module):
    """Signatures of any batch that use its size in all ways that a graph can."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.random.stateless_normal([6, 8], [1, 2]))
        self.filter = tf.Variable(tf.random.stateless_normal([3, 3, 2, 4], [3, 4]))
        self.norm = keras.layers.BatchNormalization()
        self.norm.build([None, 8])

    @tf.function(input_signature=[tf.TensorSpec([None, 6], name="x")])
    def sizes(self, x):
        count = tf.shape(x)[0]
        hidden = tf.nn.softmax(tf.reshape(x @ self.weight, [count, 4, 2]))
        drawn = tf.fill([count, 2], 0.5) + tf.cast(tf.range(2), tf.float32)
        return {
            "rows": tf.reshape(tf.concat([hidden[:, 0], drawn], 1), [-1, 4]),
            "mean": tf.reduce_mean(hidden, 0),
            "total": tf.reduce_sum(hidden) / tf.cast(count, tf.float32),
            "alike": tf.matmul(x, x, transpose_b=True),
            "count": count * 2 + 1,
        }

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 2], name="x")])
    def images(self, x):
        found = tf.nn.relu(tf.nn.conv2d(x, self.filter, 1, "SAME"))
        return {"found": tf.reshape(tf.nn.max_pool2d(found, 2, 2, "VALID"), [-1, 64])}

    @tf.function(input_signature=[tf.TensorSpec([None, 6], name="x"), tf.TensorSpec([None, 8], name="y")])
    def descend(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.norm(x @ self.weight, training=True) - y) ** 2)
        self.weight.assign_sub(0.1 * tape.gradient(loss, self.weight))
        return {"loss": loss, "weight": self.weight.read_value()}

    @tf.function(input_signature=[tf.TensorSpec([None, None, 6], name="x")])
    def lengths(self, x):
        return {"mean": tf.reduce_mean(x @ self.weight, 1)}

    @tf.function(input_signature=[tf.TensorSpec([6, 6], name="x")])
    def fixed(self, x):
        return {"y": tf.tanh(x @ self.weight)}


def exported(
    folder: pathlib.Path, name: str, parts: int, statistics: str = "whole", keeps: bool = False
) -> tuple[object, str]:
    """A signature with a batch of 6 in parts, loaded again, and what was told."""
    source, target = folder / name, folder / f"{name}_{parts}_{statistics}"
    served = Served()
    tf.saved_model.save(served, str(source), signatures={"serving_default": getattr(served, name)})
    item = Item.from_saved_model(source, "serving_default", 6)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        plan = plan_of(item, parts, statistics, products(item)[:1] if keeps else ())
        export_saved_model(source, target, plan, batch_size=6)
    assert b"part_1/" in (target / "saved_model.pb").read_bytes()
    text = " ".join(str(one.message) for one in told if "run unplaced" not in str(one.message))
    return load_saved_model(target).signatures["serving_default"], text


def test_a_saved_model_of_any_batch():
    """Also of fewer examples than parts, and of a batch that parts do not divide; a training step updates the same."""
    with tempfile.TemporaryDirectory() as name:
        for parts, keeps in ((2, False), (3, False), (4, True)):
            for kind, shapes in (("sizes", [[6]]), ("images", [[8, 8, 2]]), ("descend", [[6], [8]])):
                signature, told = exported(pathlib.Path(name), kind, parts, keeps=keeps)
                assert "in parts alone, and whole for all others" in told.replace(
                    f"in {parts} parts", "in parts"
                )
                served = Served()
                for count in (6, 7, 13, 3) if kind == "descend" else (6, 7, 13, 2, 1):
                    given = [tf.random.stateless_normal([count, *shape], [7, count]) for shape in shapes]
                    expected = getattr(served, kind)(*given)
                    assert are_close(expected, signature(**dict(zip("xy", given, strict=False))))


def test_a_saved_model_of_one_batch_says_why():
    """And runs whole for another: of other lengths, and where what is fixed is all that may come."""
    with tempfile.TemporaryDirectory() as name:
        signature, told = exported(pathlib.Path(name), "lengths", 2)
        fixed, untold = exported(pathlib.Path(name), "fixed", 2)
        served, x = Served(), tf.random.stateless_normal([6, 6], [1, 2])
        for shape in ([6, 6, 6], [4, 6, 6], [6, 3, 6], [1, 1, 6]):
            given = tf.random.stateless_normal(shape, [1, 2])
            assert are_close(served.lengths(given), signature(x=given))
        assert "a batch of 6 in 2 parts alone, and whole for all others" in told
        assert untold == ""
        assert are_close(served.fixed(x), fixed(x=x))


def test_layers_of_any_batch():
    """Convolutions, recurrent layers and attention: the plan's own batch in parts, others whole."""
    layers = keras.layers
    image, series = keras.Input((8, 8, 2)), keras.Input((3, 8))
    pooled = layers.MaxPooling2D()(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(image)))
    attended = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(series, series) + series)
    for model in (
        keras.Model(image, layers.Dense(3)(layers.Flatten()(layers.Conv2D(4, 3, strides=2)(pooled)))),
        keras.Model(series, layers.Dense(3)(layers.LSTM(4)(attended))),
    ):
        with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source, target = pathlib.Path(name) / "model", pathlib.Path(name) / "placed"
            model.export(source, verbose=False)
            plan = plan_of(Item.from_saved_model(source, "serving_default", 6), 2)
            export_saved_model(source, target, plan, batch_size=6)
            signature = load_saved_model(target).signatures["serving_default"]
        for count in (1, 2, 6, 7, 40):
            x = tf.random.stateless_normal([count, *model.inputs[0].shape[1:]], [7, count])
            assert are_close(model(x), next(iter(signature(x).values())))


def test_models_of_tensorflow_1():
    """A clipped batch: with reference variables, which no branch can be given, another one is refused."""
    for is_resource in (True, False):
        with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            source, target = pathlib.Path(name) / "model", pathlib.Path(name) / "placed"
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
                ones = tf.compat.v1.ones_initializer()
                weight = tf.compat.v1.get_variable("w", [3, 2], use_resource=is_resource, initializer=ones)
                y = tf.nn.relu(tf.tanh(x @ weight)[:10])
                session.run(tf.compat.v1.global_variables_initializer())
                tf.compat.v1.saved_model.simple_save(session, str(source), {"x": x}, {"y": y})
            plan = plan_of(Item.from_saved_model(source, "serving_default", 6), 2)
            export_saved_model(source, target, plan, batch_size=6)
            whole, placed = (
                tf.saved_model.load(str(path)).signatures["serving_default"] for path in (source, target)
            )
            for count in (1, 6, 12, 40):
                given = tf.random.stateless_normal([count, 3], [7, count])
                try:
                    assert are_close(whole(x=given), placed(x=given))
                except tf.errors.InvalidArgumentError:
                    assert not is_resource
                    assert count != 6
        says = "whole for all others" if is_resource else "refuses all others: it has reference variables"
        assert any(says in str(one.message) for one in told)


def test_a_meta_graph_is_refused():
    graph = tf.Graph()
    with graph.as_default():
        tf.nn.relu(tf.compat.v1.placeholder(tf.float32, [4, 3], "x"), "y")
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=graph.as_graph_def())
    plan = plan_of(Item.from_meta_graph(meta_graph, ["y:0"]), 2)
    assert "with --parts=1, --recompute=none and --offload=none" in refusal(
        lambda: place_meta_graph(meta_graph, plan)
    )
