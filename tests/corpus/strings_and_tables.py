"""Strings, lookup tables, vocabularies and parsing."""

from typing import Any

import keras
import tensorflow as tf

from tests.corpus.program import Make


def strings_in_and_out(make: Make) -> Any:
    """Strings are joined, split by length, matched and turned into numbers."""

    @make.traced
    def f(words):
        joined = tf.strings.join([words, "!"])
        replaced = tf.strings.regex_replace(words, "a", "o")
        return joined, tf.strings.length(joined), replaced, tf.strings.upper(words)

    return f(tf.constant(["cat", "hat"])), f(tf.constant(["banana", ""]))


def words_of_sentences(make: Make) -> Any:
    """Sentences are split into words: a ragged tensor, hashed into an embedding."""
    table = tf.Variable(tf.reshape(tf.range(20.0), [10, 2]))

    @make.traced
    def f(sentences):
        words = tf.strings.split(sentences)
        ids = tf.strings.to_hash_bucket_fast(words, 10)
        return words, tf.reduce_mean(tf.gather(table, ids.to_tensor()), axis=1)

    return f(tf.constant(["a b c", "d"])), f(tf.constant(["x y"]))


def a_static_table(make: Make) -> Any:
    """A lookup table that the function captures."""
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64)), -1
    )
    w = tf.Variable([[1.0], [2.0], [3.0]])

    @make.traced
    def f(keys):
        ids = table.lookup(keys)
        return ids, tf.one_hot(ids, 3) @ w, table.size()

    return f(tf.constant(["a", "x", "b"]))


def a_table_that_grows(make: Make) -> Any:
    """A mutable table: inserts happen once, in order, and are seen outside."""
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

    @make.traced
    def f(key, value):
        before = table.lookup(key)
        table.insert(key, value)
        return before, table.lookup(key), table.size()

    first = f(tf.constant("a"), tf.constant(1, tf.int64))
    second = f(tf.constant("a"), tf.constant(2, tf.int64))
    return first, second, table.lookup(tf.constant(["a", "b"]))


def a_vocabulary_layer(make: Make) -> Any:
    """Keras' StringLookup before an embedding."""
    lookup = keras.layers.StringLookup(vocabulary=["red", "green", "blue"])
    embedding = keras.layers.Embedding(4, 2)
    embedding.build((None,))
    f = make.traced(lambda words: embedding(lookup(words)))
    return f(tf.constant([["red", "pink"], ["blue", "green"]]))


def text_vectorization(make: Make) -> Any:
    """Text is standardized, split and looked up inside the program."""
    layer = keras.layers.TextVectorization(max_tokens=10, output_sequence_length=4)
    layer.adapt(["the cat sat", "the dog ran away"])
    w = tf.Variable(tf.ones([10, 2]))
    f = make.traced(lambda text: (layer(text), tf.gather(w, layer(text))))
    return f(tf.constant(["The cat ran!", "a dog"]))


def examples_are_parsed(make: Make) -> Any:
    """Serialized examples with fields of fixed and varying length."""

    def example(values: list[float], word: bytes) -> bytes:
        feature = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=values)),
            "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=[word])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    @make.traced
    def f(serialized):
        parsed = tf.io.parse_example(
            serialized, {"x": tf.io.VarLenFeature(tf.float32), "word": tf.io.FixedLenFeature([], tf.string)}
        )
        return tf.sparse.to_dense(parsed["x"]), parsed["word"]

    return f(tf.constant([example([1.0, 2.0], b"a"), example([3.0], b"b")]))


def numbers_from_text(make: Make) -> Any:
    """Lines of text are decoded as CSV and raw bytes."""

    @make.traced
    def f(lines, raw):
        x, y = tf.io.decode_csv(lines, [0.0, 0])
        return x * 2.0, y, tf.io.decode_raw(raw, tf.uint8), tf.strings.to_number(tf.constant(["1.5", "2"]))

    return f(tf.constant(["1.5,2", "3,4"]), tf.constant([b"ab", b"cd"]))


def images_are_decoded(make: Make) -> Any:
    """An image of a size that the bytes tell, resized to a known one."""
    png = tf.io.encode_png(tf.cast(tf.reshape(tf.range(48), [4, 4, 3]), tf.uint8))

    @make.traced
    def f(data):
        image = tf.io.decode_png(data)
        return tf.shape(image), tf.image.resize(tf.cast(image, tf.float32), [2, 2])

    return f(png)


def tables_in_a_saved_module(make: Make) -> Any:
    """A module with a table is saved and loaded with the function that uses it."""

    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0]), 0.0
            )
            self.f = make(self.weigh, input_signature=[tf.TensorSpec([None], tf.string)])

        def weigh(self, keys):
            return self.table.lookup(keys) * 10.0

    module = Module()
    keys = tf.constant(["b", "a", "c"])
    before = module.f(keys)
    tf.saved_model.save(module, str(make.folder / "module"))
    return before, tf.saved_model.load(str(make.folder / "module")).f(keys)
