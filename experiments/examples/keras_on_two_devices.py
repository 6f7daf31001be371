"""A Keras model on two devices: build, fit, report, save, load, split. The cells of docs/keras.md, on two CPU workers.

    python -m experiments.examples.keras_on_two_devices

It writes into the folder in which it runs, and takes about two minutes.
"""

# %% Build
from typing import Any

import keras
import numpy as np

import tf_placer

DEVICES = "local:2"

keras.utils.set_random_seed(0)
features = keras.Input((256,), name="features")
left = right = features
for depth in range(4):
    left = keras.layers.Dense(1024, "relu", name=f"left_{depth}")(left)
    right = keras.layers.Dense(1024, "relu", name=f"right_{depth}")(right)
score = keras.layers.Dense(1, name="score")(keras.layers.concatenate([left, right], name="meet"))
model = keras.Model(features, score, name="two_towers")
model.compile(optimizer="sgd", loss="mse", jit_compile=False)

# %% Place and fit
settings: dict[str, Any] = {"cluster": DEVICES, "budget_s": 20, "cache_dir": "plans", "keep_unplaced": False}
model.train_step = tf_placer.auto_place(model.train_step, batch_size=256, **settings)

x = np.random.default_rng(0).standard_normal((2048, 256)).astype("float32")
y = x[:, :1]
model.fit(x, y, batch_size=256, epochs=2, shuffle=False, verbose=2)

# %% Report
print(model.train_step.report())
model.train_step.report("report.html")  # writes the page

# %% Save
del model.train_step  # a function of this process; what Keras saves are layers, weights and the optimizer
model.save("two_towers.keras")

# %% Load, and go on
again = keras.models.load_model("two_towers.keras")
assert np.array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
again.train_step = tf_placer.auto_place(again.train_step, batch_size=256, **settings)
again.fit(x, y, batch_size=256, shuffle=False, verbose=2)  # the plan was kept: no search
assert "by a plan that was kept" in again.train_step.report()

# %% In parts
layers = [keras.layers.Dense(1024, "relu", name=f"layer_{depth}") for depth in range(4)]
chain = keras.Sequential([keras.Input((256,)), *layers, keras.layers.Dense(1, name="score")])
chain.compile(optimizer="sgd", loss="mse", jit_compile=False)
chain.train_step = tf_placer.auto_place(chain.train_step, batch_size=256, parts=2, **settings)
chain.fit(x[:2000], y[:2000], batch_size=256, shuffle=False, verbose=2)
print(chain.train_step.report())
