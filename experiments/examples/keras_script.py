"""A Keras model, trained: a script as people write it, which knows nothing of devices or plans.

python experiments/examples/keras_script.py
python -m tf_placer run --cluster=local experiments/examples/keras_script.py
"""

import keras
import numpy as np

keras.utils.set_random_seed(0)
features = keras.Input((128,), name="features")
left = right = features
for depth in range(3):
    left = keras.layers.Dense(512, "relu", name=f"left_{depth}")(left)
    right = keras.layers.Dense(512, "relu", name=f"right_{depth}")(right)
score = keras.layers.Dense(1, name="score")(keras.layers.concatenate([left, right], name="meet"))
model = keras.Model(features, score, name="two_towers")
model.compile(optimizer="sgd", loss="mse")

x = np.random.default_rng(0).standard_normal((8192, 128)).astype("float32")
y = x[:, :1]
history = model.fit(x, y, batch_size=128, epochs=3, shuffle=False, verbose=0)
print("losses", *(f"{loss:.9g}" for loss in history.history["loss"]))
