"""Keras models that are compiled, frozen, changed and run in other ways after their step was placed."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.corpus.keras_models import X, Y, compiled, state
from tests.corpus.program import Make, runs_as_it_is


def fit(model: keras.Model, epochs: int = 1, **options: Any) -> dict[str, list[float]]:
    """One history of three batches an epoch."""
    return model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0, **options).history


def placed_model(make: Make, **options: Any) -> keras.Model:
    """A small model whose training step is placed, trained for an epoch."""
    model = compiled(keras.optimizers.SGD(0.1), **options)
    model.train_step = make.of_plain(model.train_step)
    fit(model)
    return model


class OwnStep(keras.Model):
    """A step of one's own, which reads a Python attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = layers.Dense(4, "tanh"), layers.Dense(1)
        self.penalty = 0.0

    def call(self, x):
        return self.out(self.hidden(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
            loss += self.penalty * tf.add_n([tf.reduce_sum(w**2) for w in self.trainable_variables])
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"own": loss}


def _own_model(make: Make) -> keras.Model:
    """A model with a step of its own, placed, trained for an epoch."""
    model = OwnStep()
    model.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    model.train_step = make.of_plain(model.train_step)
    fit(model)
    return model


def a_layer_is_frozen(make: Make) -> Any:
    """A layer is frozen and thawed again, and the model compiled each time."""
    model = placed_model(make)
    results = []
    for trainable in (False, True):
        model.layers[0].trainable = trainable
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        results += [fit(model, 2), state(model)]
    return results


def another_optimizer(make: Make) -> Any:
    """Compiled with other optimizers, whose slots are new."""
    model = placed_model(make)
    results = []
    for optimizer in (keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.05, momentum=0.9)):
        model.compile(optimizer, "mse", jit_compile=False)
        results += [fit(model, 2), state(model)]
    return results


def another_optimizer_with_a_step_of_ones_own(make: Make) -> Any:
    """The new optimizer's learning rate is nothing: the weights stay."""
    model = _own_model(make)
    before = model.get_weights()
    model.compile(optimizer=keras.optimizers.SGD(0.0), jit_compile=False)
    history = fit(model)
    moved = [np.abs(a - b).max() for a, b in zip(before, model.get_weights(), strict=True)]
    model.compile(optimizer=keras.optimizers.Adam(0.1), jit_compile=False)
    return history, moved, fit(model), state(model)


def another_loss_and_metric(make: Make) -> Any:
    """Compiled with another loss, another metric and weights of the loss."""
    model = placed_model(make, metrics=["mae"])
    results = []
    for loss, metrics in (("mae", ["mse"]), (keras.losses.Huber(0.5), None), ("mse", ["mae", "mape"])):
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=metrics, jit_compile=False)
        results += [fit(model), state(model)]
    return results


def all_steps_are_placed_and_compiled_anew(make: Make) -> Any:
    """Training, evaluating and predicting, before and after compiling."""
    model = compiled("adam", metrics=["mae"])
    model.train_step = make.of_plain(model.train_step)
    model.test_step = make.of_plain(model.test_step)
    model.predict_step = make.of_plain(model.predict_step)
    results = []
    for optimizer in ("adam", "rmsprop"):
        model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
        results += [fit(model, validation_data=(X[:8], Y[:8])), model.evaluate(X, Y, verbose=0)]
        results += [model.predict(X, verbose=0), state(model)]
    return results


def a_changed_attribute(make: Make) -> Any:
    """A Python attribute that the step reads: it counts when Keras makes its function anew."""
    model = _own_model(make)
    results = []
    for penalty in (0.1, 0.5):
        model.penalty = penalty
        results.append(fit(model))  # Keras goes on with the function it has
        model.make_train_function(force=True)
        results += [fit(model), model.get_weights()]
    return results


def functions_are_made_anew(make: Make) -> Any:
    """``make_train_function(force=True)`` and its like, where nothing changed."""
    model = placed_model(make)
    model.test_step = make.of_plain(model.test_step)
    results = [model.evaluate(X, Y, verbose=0)]
    for _ in range(2):
        model.make_train_function(force=True)
        model.make_test_function(force=True)
        results += [fit(model), model.evaluate(X, Y, verbose=0), state(model)]
    return results


def eagerly_after_a_while(make: Make) -> Any:
    """Compiled with ``run_eagerly=True``: Python runs once for each batch."""
    seen: list[bool] = []

    class Model(OwnStep):
        def train_step(self, data):
            seen.append(tf.executing_eagerly())
            return super().train_step(data)

    model = Model()
    model.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    model.train_step = make.of_plain(model.train_step)
    results = [fit(model)]
    seen.clear()  # a placed step is traced once, Keras' own twice
    model.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly=True)
    results += [fit(model), list(seen), model.get_weights()]
    model.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    return [*results, fit(model), model.get_weights()]


def all_functions_run_eagerly(make: Make) -> Any:
    """``tf.config.run_functions_eagerly(True)`` while a model trains: the step's Python runs for each batch."""
    model = _own_model(make)
    seen: list[bool] = []
    original = OwnStep.call

    def call(self: Any, x: tf.Tensor) -> tf.Tensor:
        seen.append(tf.executing_eagerly())
        return original(self, x)

    tf.config.run_functions_eagerly(True)
    try:
        model.call = call.__get__(model)
        eager = fit(model), list(seen)
    finally:
        tf.config.run_functions_eagerly(False)
    return eager, model.get_weights()


def eagerly_however_it_is_decorated(make: Make) -> Any:
    """A step decorated in its class, one behind a lambda, and a helper of an eager step: each runs as Python."""
    seen: list[str] = []

    class Decorated(OwnStep):
        @make.of_plain
        def train_step(self, data):
            seen.append(f"class {tf.executing_eagerly()}")
            return super().train_step(data)

    class Helped(OwnStep):
        @make.of_plain
        def forward(self, x):
            seen.append(f"helper {tf.executing_eagerly()}")
            return self(x, training=True)

        def train_step(self, data):
            self.forward(data[0])
            return super().train_step(data)

    results = []
    for model in (Decorated(), Helped(), OwnStep()):
        step = model.train_step
        if type(model) is OwnStep:
            model.train_step = make.of_plain(lambda data, step=step: (seen.append("lambda"), step(data))[1])
        model.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly=True)
        results += [fit(model), model.get_weights()]
    eagerly = list(seen)
    model.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    return results, eagerly, fit(model)


def callbacks(make: Make) -> Any:
    """A schedule of learning rates, early stopping that restores the best weights, checkpoints, and Python."""
    model = compiled(keras.optimizers.SGD(0.5))
    model.train_step = make.of_plain(model.train_step)
    path = str(make.folder / "best.weights.h5")
    seen: list[Any] = []
    calls = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.5 / (epoch + 1)),
        keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=10.0, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(path, "val_loss", save_best_only=True, save_weights_only=True),
        keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append((batch, float(logs["loss"])))
        ),
    ]
    history = fit(model, 4, validation_data=(X[:8], Y[:8]), callbacks=calls)
    stopped = state(model)
    model.load_weights(path)
    return {key: history[key] for key in ("loss", "val_loss")}, seen, stopped, fit(model), state(model)


def one_batch_at_a_time(make: Make) -> Any:
    """``train_on_batch``, ``test_on_batch`` and ``predict_on_batch``, and a learning rate that is set between."""
    model = placed_model(make)
    results = []
    for rate in (0.1, 0.0, 0.3):
        model.optimizer.learning_rate = rate
        results.append(model.train_on_batch(X, Y))
        results.append(model.test_on_batch(X, Y))
        results.append(model.predict_on_batch(X[:2]))
    return results, state(model)


def weights_of_samples_and_classes(make: Make) -> Any:
    """Other signatures of one step: sample weights, class weights, a dataset, a generator."""
    model = placed_model(make)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)
    pairs = [(X[i : i + 8], Y[i : i + 8], np.ones(8, np.float32) * i) for i in (0, 8, 16)]
    return (
        fit(model, sample_weight=np.linspace(0.0, 1.0, 24)),
        model.fit(dataset, epochs=2, verbose=0).history,
        model.fit((pair for pair in pairs), steps_per_epoch=3, verbose=0).history,
        model.fit(X, (Y > 0).astype(int), class_weight={0: 1.0, 1: 3.0}, shuffle=False, verbose=0).history,
        state(model),
    )


def gradients_that_accumulate(make: Make) -> Any:
    """A step of one's own that keeps gradients in variables, and applies them every second batch."""

    class Model(OwnStep):
        def build(self, shape):
            super().build(shape)
            self.hidden.build(shape)
            self.out.build((None, 4))
            self.kept = [tf.Variable(tf.zeros(w.shape)) for w in self.trainable_variables]
            self.count = tf.Variable(0, dtype=tf.int64)

        def train_step(self, data):
            x, y = data
            weights = self.trainable_variables
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
            for kept, gradient in zip(self.kept, tape.gradient(loss, weights), strict=True):
                kept.assign_add(gradient)
            if self.count.assign_add(1) % 2 == 0:
                for weight, kept in zip(weights, self.kept, strict=True):
                    weight.assign(weight - 0.1 * kept)
                    kept.assign(tf.zeros_like(kept))
            return {"own": loss}

    model = Model()
    model.build((None, 6))
    model.compile(optimizer="sgd", jit_compile=False)
    model.train_step = make.of_plain(tf.autograph.to_graph(Model.train_step).__get__(model))
    return fit(model, 3), model.get_weights(), [v.numpy() for v in model.kept], model.count.numpy()


def two_optimizers_in_one_step(make: Make) -> Any:
    """An adversarial pair: each has its optimizer, and the step trains one after the other."""

    class Pair(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.maker, self.judge = (
                keras.Sequential([keras.Input((6,)), layers.Dense(4, "tanh"), layers.Dense(6)]),
                keras.Sequential([keras.Input((6,)), layers.Dense(4, "relu"), layers.Dense(1)]),
            )

        def compile(self, maker_optimizer, judge_optimizer):
            super().compile(optimizer=maker_optimizer, jit_compile=False)
            self.judge_optimizer = judge_optimizer

        def call(self, x):
            return self.judge(self.maker(x))

        def train_step(self, data):
            x = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.softplus(self.judge(self.maker(x)) - self.judge(x)))
            weights = self.judge.trainable_variables
            self.judge_optimizer.apply(tape.gradient(loss, weights), weights)
            with tf.GradientTape() as tape:
                other = -tf.reduce_mean(self.judge(self.maker(x)))
            weights = self.maker.trainable_variables
            self.optimizer.apply(tape.gradient(other, weights), weights)
            return {"judge": loss, "maker": other}

    model = Pair()
    model.compile(keras.optimizers.SGD(0.05), keras.optimizers.Adam(0.01))
    model.train_step = make.of_plain(model.train_step)
    first = model.fit(X, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    model.compile(keras.optimizers.Adam(0.02), keras.optimizers.SGD(0.1))
    second = model.fit(X, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return first, second, model.get_weights()


def a_layer_is_put_in_its_place(make: Make) -> Any:
    """A layer is replaced by another one, and the model compiled: the step trains the new one."""
    model = placed_model(make)
    model.pop()
    model.add(layers.Dense(3, "relu"))
    model.add(layers.Dense(1))
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    return fit(model, 2), state(model)


def low_rank_adapters(make: Make) -> Any:
    """A trained layer gets low-rank adapters, which then train alone."""
    model = placed_model(make)
    model.layers[0].enable_lora(rank=2)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    return fit(model, 2), state(model)


def averages_of_weights_in_the_optimizer(make: Make) -> Any:
    """An optimizer that keeps averages of the weights, and writes them back at the end."""
    model = compiled(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2))
    model.train_step = make.of_plain(model.train_step)
    return fit(model, 2), state(model)


def a_scaled_loss(make: Make) -> Any:
    """Mixed precision with a dynamic scale, which is a variable, under a branch."""
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4.0)
    model = compiled(optimizer)
    model.train_step = make.of_plain(model.train_step)
    return fit(model, 2), state(model)


def a_clone_and_its_original(make: Make) -> Any:
    """A clone of a placed model is trained unplaced, and gives its weights back."""
    model = placed_model(make)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    clone.compile(keras.optimizers.SGD(0.2), "mse", jit_compile=False)
    results = [fit(clone), fit(model)]
    model.set_weights(clone.get_weights())
    return [*results, fit(model), state(model), state(clone)]


def trained_again_from_a_file(make: Make) -> Any:
    """A saved model with its optimizer's state is loaded, placed and trained on."""
    model = compiled("adam")
    fit(model)
    model.save(make.folder / "model.keras")
    again = keras.models.load_model(make.folder / "model.keras")
    again.compile(again.optimizer, "mse", jit_compile=False)
    again.train_step = make.of_plain(again.train_step)
    first = fit(again), state(again)
    again.compile("adam", "mse", jit_compile=False)
    return first, fit(again), state(again)


@runs_as_it_is("jit_compile=True")
def compiled_by_xla_later(make: Make) -> Any:
    """A placed model is compiled again, for XLA."""
    model = placed_model(make)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=True)
    return fit(model), state(model)


def _decorated(make: Make) -> Callable[[], keras.Model]:
    """A class of models whose step is decorated where it is defined."""

    class Model(OwnStep):
        @make.traced
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True)) * (1.0 + self.penalty)
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {**self.compute_metrics(x, y, None), "own": loss}

        @make.traced
        def test_step(self, data):
            x, y = data
            return {"loss": self.compute_loss(x, y, self(x))}

    return Model


def a_step_that_is_decorated_in_its_class(make: Make) -> Any:
    """The training and the test step of two models of one class."""
    results = []
    for model in [_decorated(make)() for _ in range(2)]:
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        results += [fit(model, 2), model.evaluate(X, Y, verbose=0), state(model)]
    return results


def a_decorated_step_that_is_inherited(make: Make) -> Any:
    """A subclass calls the decorated step of its base, and another overrides what that calls."""
    base = _decorated(make)

    class Longer(base):
        def train_step(self, data):
            logs = super().train_step(data)
            return {**logs, "double": logs["own"] * 2.0}

    class Other(base):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return tf.reduce_mean(tf.abs(y - y_pred))

    results = []
    for model in (Longer(), Other()):
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        results += [fit(model, 2), state(model)]
    return results


def a_decorated_call(make: Make) -> Any:
    """A model and a layer whose ``call`` is decorated in the class, with the training flag."""

    class Noisy(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.drop = layers.Dense(4), layers.Dropout(0.5, seed=3)

        @make.traced
        def call(self, x, training=False):
            return self.drop(tf.tanh(self.dense(x)), training=training)

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.noisy, self.out = Noisy(), layers.Dense(1)

        @make.traced
        def call(self, x, training=False):
            return self.out(self.noisy(x, training=training))

    model = Model()
    model.build((None, 6))
    before = model(X), model(X, training=True)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    return before, fit(model), model.predict(X, verbose=0), model(X), model.get_weights()
