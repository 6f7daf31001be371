"""Keras models on two live workers, from the first batch to the end of the process; prints "done"."""

import sys

import keras
import numpy as np
import tensorflow as tf

import tf_placer

features = keras.Input((16,))
middle = [keras.layers.Dense(16, "relu")(features) for _ in range(2)]
model = keras.Model(features, keras.layers.Dense(1)(keras.layers.concatenate(middle)))
model.compile(optimizer="sgd", loss="mse", jit_compile=False)
x = np.random.default_rng(0).standard_normal((100, 16)).astype("float32")

# Older than the connection to the workers, and gone before and after it.
older = [tf.function(lambda y, i=i: tf.reduce_sum(y) + i) for i in range(3)]
for function in older:
    function(x)
values = iter(tf.data.Dataset.range(9).map(lambda value: value + 1).batch(2))
table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
del older[0]

for parts in (1, 2):
    model.train_step = tf_placer.auto_place(
        model.train_step, cluster="local:2", budget_s=3, batch_size=32, parts=parts, keep_unplaced=False,
        cache_dir=sys.argv[1],
    )  # fmt: skip
    model.fit(x, x[:, :1], batch_size=32, epochs=2, verbose=0)
    assert model.train_step.report()
    del model.train_step
    model.train_function = None
    del older[0]
assert next(values).numpy().tolist() == [1, 2]
model.save(f"{sys.argv[1]}/model.keras")
again = keras.models.load_model(f"{sys.argv[1]}/model.keras")
assert np.array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
print("done")
