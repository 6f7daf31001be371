"""SavedModels of several kinds, written for the tests, each with an example of what it is asked."""

from __future__ import annotations

import dataclasses
import pathlib

import keras
import numpy as np
import tensorflow as tf

from tf_placer.graph.saved_model import read_saved_model


@dataclasses.dataclass(frozen=True)
class Example:
    """A SavedModel on disk.

    Attributes:
      path: its folder.
      questions: signature -> input name -> value.
    """

    path: pathlib.Path
    questions: dict[str, dict[str, np.ndarray]]


def a_keras_model(folder: pathlib.Path) -> Example:
    """A small convolutional network, exported as Keras does; any batch size."""
    keras.utils.set_random_seed(3)
    layers = [keras.Input((6, 6, 3), name="image"), keras.layers.Conv2D(4, 3, activation="relu")]
    layers += [keras.layers.BatchNormalization(), keras.layers.Flatten(), keras.layers.Dense(5)]
    return _exported(keras.Sequential(layers), folder / "keras", (3, 6, 6, 3))


def a_keras_application(folder: pathlib.Path) -> Example:
    """A published network with random weights, on small images."""
    keras.utils.set_random_seed(4)
    model = keras.applications.MobileNetV3Small(weights=None, input_shape=(32, 32, 3), classes=10)
    return _exported(model, folder / "mobilenet", (2, 32, 32, 3))


def _exported(model: keras.Model, path: pathlib.Path, shape: tuple[int, ...]) -> Example:
    model.export(str(path), verbose=False)
    (name,) = read_saved_model(path).signature("serving_default").inputs
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return Example(path, {"serving_default": {name: x}})


class TwoSignatures(tf.Module):
    """A module with a counter, a loop and two signatures that share a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="weights")
        self.calls = tf.Variable(0, name="calls")

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def power(self, x):
        self.calls.assign_add(1)
        y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y @ self.weights), [0, x])[1]
        return {"power": y, "calls": self.calls.read_value()}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="scale")])
    def scaled(self, scale):
        return {"scaled": self.weights * scale, "sum": tf.reduce_sum(tf.exp(-scale))}


def several_signatures(folder: pathlib.Path) -> Example:
    """``TwoSignatures``, saved."""
    module = TwoSignatures()
    signatures = {"power": module.power, "scaled": module.scaled}
    tf.saved_model.save(module, str(folder / "module"), signatures=signatures)
    questions = {"power": {"x": np.array([[1.0, -1.0]], np.float32)}, "scaled": {"scale": np.float32(3.0)}}
    return Example(folder / "module", questions)


class Lookup(tf.Module):
    """Words to rows of a matrix, through a hash table that is filled from a file."""

    def __init__(self, words: pathlib.Path) -> None:
        super().__init__()
        initializer = tf.lookup.TextFileInitializer(
            str(words),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.table = tf.lookup.StaticHashTable(initializer, -1)
        self.embedding = tf.Variable(tf.reshape(tf.range(8.0), [4, 2]), name="embedding")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def embed(self, words):
        return {"embedded": tf.gather(self.embedding, self.table.lookup(tf.strings.lower(words)) + 1)}


def a_hash_table(folder: pathlib.Path) -> Example:
    """``Lookup``, saved; the file of words is only in the model's assets."""
    words = folder / "words.txt"
    words.write_text("apple\nbanana\ncherry\n")
    module = Lookup(words)
    tf.saved_model.save(module, str(folder / "table"), signatures={"serving_default": module.embed})
    words.unlink()
    questions = {"serving_default": {"words": np.array([b"Banana", b"durian"], object)}}
    return Example(folder / "table", questions)


class Examples(tf.Module):
    """Serialized ``tf.train.Example`` protos to numbers and strings."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.reshape(tf.range(12.0), [4, 3]), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def classify(self, examples):
        features = {
            "x": tf.io.FixedLenFeature([4], tf.float32),
            "name": tf.io.FixedLenFeature([], tf.string),
        }
        parsed = tf.io.parse_example(examples, features)
        lengths = tf.cast(tf.strings.length(parsed["name"]), tf.float32)
        return {
            "y": parsed["x"] @ self.weights + lengths[:, tf.newaxis],
            "name": tf.strings.join([tf.strings.upper(parsed["name"]), "!"]),
        }


def string_inputs(folder: pathlib.Path) -> Example:
    """``Examples``, saved."""
    module = Examples()
    tf.saved_model.save(module, str(folder / "strings"), signatures={"serving_default": module.classify})
    protos = [
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=[k, 1.0, -k, 0.5])),
                    "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n" * k])),
                }
            )
        )
        for k in range(1, 4)
    ]
    serialized = np.array([proto.SerializeToString() for proto in protos], object)
    return Example(folder / "strings", {"serving_default": {"examples": serialized}})


def from_tensorflow_1(folder: pathlib.Path) -> Example:
    """A graph without functions and objects, as TensorFlow 1 saved it."""
    path = folder / "v1"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        weights = tf.compat.v1.get_variable("w", initializer=tf.ones([3, 2]), use_resource=True)
        y = tf.nn.relu(x @ weights) + 1.0
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y})
    return Example(path, {"serving_default": {"x": np.array([[1.0, -5.0, 2.0]], np.float32)}})


def a_call_from_tensorflow_1(folder: pathlib.Path) -> Example:
    """A graph without objects, in which a function with a side effect is called on what other ops computed."""
    path = folder / "v1_call"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        weights = tf.compat.v1.get_variable("w", initializer=tf.ones([2, 2]), use_resource=True)
        calls = tf.compat.v1.get_variable("calls", initializer=0, use_resource=True)

        @tf.function
        def step(left, right):
            calls.assign_add(1)
            _, y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y @ weights), [0, left])
            return y - 2.0 * right, calls.read_value()

        y, n = step(*tf.split(x, 2, axis=1))
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y, "n": n})
    question = np.array([[1.0, -5.0, 2.0, 0.5]], np.float32)
    return Example(path, {"serving_default": {"x": question}})
