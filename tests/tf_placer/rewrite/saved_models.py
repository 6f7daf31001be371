"""SavedModels of several kinds, each with an example of what it is asked; placements of them, and answers."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_graph import read_saved_model
from tf_placer.problem.analytic_problem import analytic_problem, pinned
from tf_placer.problem.placement import Placement


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
    module = TwoSignatures()
    signatures = {"power": module.power, "scaled": module.scaled}
    tf.saved_model.save(module, str(folder / "module"), signatures=signatures)
    questions = {"power": {"x": np.array([[1.0, -1.0]], np.float32)}, "scaled": {"scale": np.float32(3.0)}}
    return Example(folder / "module", questions)


def numbers_of_lines(words: pathlib.Path) -> tf.lookup.TextFileInitializer:
    """What fills a table with the lines of a file and their numbers."""
    index = tf.lookup.TextFileIndex
    return tf.lookup.TextFileInitializer(str(words), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)


class Lookup(tf.Module):
    """Words to rows of a matrix, through a hash table that is filled from a file."""

    def __init__(self, words: pathlib.Path) -> None:
        super().__init__()
        self.table = tf.lookup.StaticHashTable(numbers_of_lines(words), -1)
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
    return Example(folder / "table", {"serving_default": {"words": np.array([b"Banana", b"durian"], object)}})


class Examples(tf.Module):
    """Serialized ``tf.train.Example`` protos to numbers and strings."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.reshape(tf.range(12.0), [4, 3]), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def classify(self, examples):
        features = {"x": tf.io.FixedLenFeature([4], tf.float32), "name": tf.io.FixedLenFeature([], tf.string)}
        parsed = tf.io.parse_example(examples, features)
        lengths = tf.cast(tf.strings.length(parsed["name"]), tf.float32)
        return {
            "y": parsed["x"] @ self.weights + lengths[:, tf.newaxis],
            "name": tf.strings.join([tf.strings.upper(parsed["name"]), "!"]),
        }


def string_inputs(folder: pathlib.Path) -> Example:
    module = Examples()
    tf.saved_model.save(module, str(folder / "strings"), signatures={"serving_default": module.classify})

    def proto(k: int) -> bytes:
        x = tf.train.Feature(float_list=tf.train.FloatList(value=[k, 1.0, -k, 0.5]))
        name = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n" * k]))
        features = tf.train.Features(feature={"x": x, "name": name})
        return tf.train.Example(features=features).SerializeToString()

    serialized = np.array([proto(k) for k in range(1, 4)], object)
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
    return Example(path, {"serving_default": {"x": np.array([[1.0, -5.0, 2.0, 0.5]], np.float32)}})


def references_on_devices(folder: pathlib.Path, seed: int) -> Example:
    """Three signatures that share reference variables of TensorFlow 1, and ``tf.device`` around anything."""
    path, generator = folder / f"references_{seed}", np.random.default_rng(seed)

    def anywhere() -> contextlib.AbstractContextManager:
        return tf.device([None, "/cpu:0", *(f"/device:CPU:{k}" for k in range(4))][generator.integers(6)])

    def variable(name: str, *shape: int) -> tf.Tensor:
        value = tf.constant(generator.normal(size=shape), tf.float32)
        with anywhere():
            is_resource = bool(generator.random() < 0.3)
            return tf.compat.v1.get_variable(name, initializer=value, use_resource=is_resource)

    with tf.Graph().as_default():
        shared, left, right = variable("shared", 3, 3), variable("left", 3, 3), variable("right", 3, 2)
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        with anywhere():
            hidden = tf.tanh(x @ shared)
        with anywhere():
            y = tf.nn.relu(hidden @ left)
        with anywhere():
            z = hidden @ right + tf.reduce_mean(tf.nn.embedding_lookup(shared, [0, 2]))
        with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(allow_soft_placement=True)) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            signature = tf.compat.v1.saved_model.predict_signature_def
            signatures = {
                "first": signature({"x": x}, {"y": y}),
                "second": signature({"x": x}, {"z": z, "sum": tf.reduce_sum(shared)}),
                "third": signature({"x": x}, {"y": y, "hidden": hidden}),
            }
            builder = tf.compat.v1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(session, ["serve"], signatures)
            builder.save()
    question = {"x": generator.normal(size=(2, 3)).astype(np.float32)}
    return Example(path, dict.fromkeys(signatures, question))


def a_recurrent_model(folder: pathlib.Path, *, by_keras: bool) -> Example:
    """Layers that loop over steps, of any number, exported by Keras or by TensorFlow."""
    keras.utils.set_random_seed(5)
    layers = [keras.Input((None, 4)), keras.layers.Masking(), keras.layers.LSTM(5, return_sequences=True)]
    layers += [keras.layers.Bidirectional(keras.layers.GRU(3)), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    if by_keras:
        return _exported(model, folder / "recurrent", (3, 6, 4))
    tf.saved_model.save(model, str(folder / "recurrent_saved"))
    (name,) = read_saved_model(folder / "recurrent_saved").signature("serving_default").inputs
    x = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)
    return Example(folder / "recurrent_saved", {"serving_default": {name: x}})


def a_text_model(folder: pathlib.Path) -> Example:
    """Text that Keras splits and looks up in a vocabulary, then a recurrent layer."""
    keras.utils.set_random_seed(6)
    words = keras.layers.TextVectorization(max_tokens=50, output_sequence_length=6)
    words.adapt(["hello world", "the cat sat", "a dog ran"])
    layers = [keras.Input((), dtype="string"), words, keras.layers.Embedding(50, 4), keras.layers.LSTM(3)]
    keras.Sequential([*layers, keras.layers.Dense(2)]).export(str(folder / "text"), verbose=False)
    (name,) = read_saved_model(folder / "text").signature("serving_default").inputs
    text = np.array([b"hello cat", b"a big dog sat", b""], object)
    return Example(folder / "text", {"serving_default": {name: text}})


def a_model_of_categories(folder: pathlib.Path) -> Example:
    """Strings and whole numbers, looked up by Keras layers."""
    keras.utils.set_random_seed(7)
    color, size = (
        keras.Input((2,), dtype="string", name="color"),
        keras.Input((2,), dtype="int64", name="size"),
    )
    colors = keras.layers.StringLookup(vocabulary=["red", "green"], output_mode="multi_hot")(color)
    sizes = keras.layers.Embedding(4, 3)(keras.layers.IntegerLookup(vocabulary=[1, 5, 9])(size))
    joined = keras.layers.Concatenate()([colors, keras.layers.Flatten()(sizes)])
    model = keras.Model({"color": color, "size": size}, keras.layers.Dense(2)(joined))
    model.export(str(folder / "categories"), verbose=False)
    inputs = {
        "color": np.array([[b"red", b"blue"], [b"green", b"green"]], object),
        "size": np.array([[1, 4], [9, 5]], np.int64),
    }
    return Example(folder / "categories", {"serving_default": inputs})


class RaggedWords(tf.Module):
    """Sentences of any length: split, looked up in a file's vocabulary, and ragged until the end."""

    def __init__(self, words: pathlib.Path) -> None:
        super().__init__()
        self.table = tf.lookup.StaticVocabularyTable(numbers_of_lines(words), 2)
        self.embedding = tf.Variable(tf.reshape(tf.range(10.0), [5, 2]), name="embedding")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def embed(self, sentences):
        ids = tf.ragged.map_flat_values(self.table.lookup, tf.strings.split(tf.strings.lower(sentences)))
        embedded = tf.ragged.map_flat_values(lambda one: tf.gather(self.embedding, one), ids)
        count = tf.map_fn(lambda row: tf.cast(tf.size(row), tf.float32), ids, fn_output_signature=tf.float32)
        return {"mean": tf.reduce_mean(embedded, axis=1), "ids": ids.to_tensor(-1), "count": count}


def ragged_words(folder: pathlib.Path) -> Example:
    (folder / "vocabulary.txt").write_text("apple\nbanana\ncherry\n")
    module = RaggedWords(folder / "vocabulary.txt")
    tf.saved_model.save(module, str(folder / "ragged"), signatures=module.embed)
    sentences = np.array([b"Apple pie banana", b"cherry", b"kiwi apple"], object)
    return Example(folder / "ragged", {"serving_default": {"sentences": sentences}})


class Detector(tf.Module):
    """Images that are decoded, and boxes of which data says how many are kept."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="images"),
            tf.TensorSpec([None, 4], tf.float32, name="boxes"),
        ]
    )
    def detect(self, images, boxes):
        def small(image):
            return tf.image.resize(tf.io.decode_image(image, channels=3, expand_animations=False), [8, 8])

        pixels = tf.map_fn(small, images, fn_output_signature=tf.TensorSpec([8, 8, 3], tf.float32))
        kept = tf.gather(boxes, tf.image.non_max_suppression(boxes, boxes[:, 0], 10, 0.3))
        large = tf.boolean_mask(kept, kept[:, 2] > 0.5)
        return {"mean": tf.reduce_mean(pixels, [1, 2]), "large": large, "where": tf.where(boxes > 0.5)}


def a_detector(folder: pathlib.Path) -> Example:
    module = Detector()
    tf.saved_model.save(module, str(folder / "detector"), signatures=module.detect)
    images = [tf.io.encode_png(np.full((5, 9, 3), value, np.uint8)).numpy() for value in (0, 7, 200)]
    boxes = np.random.default_rng(0).random((12, 4)).astype(np.float32)
    return Example(
        folder / "detector", {"serving_default": {"images": np.array(images, object), "boxes": boxes}}
    )


def placement_of(
    path: pathlib.Path, signature: str, batch_size: int = 32, held: Mapping[str, str] | None = None
) -> Placement:
    """A random one, in which the ops of ``held`` are where that says."""
    item = Item.from_saved_model(path, signature, batch_size)
    there = {op: device for op, device in (held or {}).items() if op in item.index.id_of_name}
    problem = pinned(item, analytic_problem(item, Cluster.logical(NUM_DEVICES)), there)
    generator = np.random.default_rng(0)
    return Placement(problem, [generator.choice(np.flatnonzero(row)) for row in problem.allowed])


def answers(model, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Bytes, or lists of strings, by output."""
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    return {key: bits(value.numpy()) for key, value in model.signatures[signature](**tensors).items()}


def bits(value: np.ndarray) -> object:
    return value.tolist() if value.dtype == object else value.tobytes()
