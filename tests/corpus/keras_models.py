"""Keras models: fit, evaluate, predict, saving and loading, models built twice, models called as functions."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.corpus.program import Make, runs_as_it_is

X = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
Y = X[:, :1] * 2.0


def compiled(optimizer: Any = "sgd", **options: Any) -> keras.Model:
    """A small model whose steps XLA does not compile."""
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(1)])
    model.compile(optimizer=optimizer, loss="mse", **{"jit_compile": False, **options})
    return model


def state(model: keras.Model) -> list[np.ndarray]:
    """Weights and optimizer slots."""
    return [np.array(variable) for variable in (*model.variables, *model.optimizer.variables)]


def fit_evaluate_and_predict(make: Make) -> Any:
    """The steps of a compiled model are placed; Keras goes on calling them."""
    model = compiled(metrics=["mae"])
    model.train_step = make(model.train_step)
    model.test_step = make(model.test_step)
    model.predict_step = make(model.predict_step)
    history = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return history, model.evaluate(X, Y, batch_size=8, verbose=0), model.predict(X, verbose=0), state(model)


def fit_with_adam_and_a_last_small_batch(make: Make) -> Any:
    """The last batch of an epoch is smaller: a second signature."""
    model = compiled(keras.optimizers.AdamW(0.01))
    model.train_step = make(model.train_step)
    losses = model.fit(X, Y, batch_size=10, epochs=2, shuffle=False, verbose=0).history["loss"]
    return losses, state(model)


@runs_as_it_is("jit_compile=True")
def fit_compiled_by_xla(make: Make) -> Any:
    """A step that Keras compiles as one program is left alone."""
    model = compiled(jit_compile=True)
    model.train_step = make(model.train_step)
    return model.fit(X, Y, batch_size=8, epochs=1, shuffle=False, verbose=0).history["loss"], state(model)


def the_same_model_built_twice(make: Make) -> Any:
    """A notebook cell that runs again: the second model's layers have other names."""
    results = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        model = compiled("adam")
        model.optimizer.build(model.trainable_variables)
        model.train_step = make(model.train_step)
        results.append(model.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history["loss"])
        results.append(state(model))
    return results


def a_model_as_a_function(make: Make) -> Any:
    """A model itself is wrapped: it is called, and its attributes are still there."""
    model = compiled()
    f = make(model)
    names = [layer.name.rstrip("_0123456789") for layer in model.layers]
    return f(X), f(X[:3]), names, model.count_params()


def attributes_of_a_wrapped_model(make: Make) -> Any:
    """What the wrapper is asked for and set to is the model's."""
    model = compiled()
    f = make.traced(model)
    f(X)
    wrapper = f if hasattr(f, "trainable_variables") else model
    wrapper.trainable = False
    return len(model.trainable_variables), wrapper.count_params(), wrapper.predict(X, verbose=0)


def saved_and_loaded_in_every_format(make: Make) -> Any:
    """A model that was trained placed is saved as .keras, weights and SavedModel, and loaded."""
    model = compiled("adam")
    model.train_step = make(model.train_step)
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    del model.train_step  # Keras does not save what an instance overrides
    model.save(make.folder / "model.keras")
    model.save_weights(make.folder / "model.weights.h5")
    model.export(make.folder / "exported", verbose=False)
    again = compiled("adam")
    again.load_weights(make.folder / "model.weights.h5")
    exported = tf.saved_model.load(str(make.folder / "exported"))
    loaded = keras.models.load_model(make.folder / "model.keras")
    answers = [one.predict(X, verbose=0) for one in (loaded, again)]
    return state(model), answers, exported.serve(X)


def an_exported_model_is_loaded_and_placed(make: Make) -> Any:
    """The signature and the function of a SavedModel from ``model.export`` are placed."""
    model = compiled()
    model.export(make.folder / "exported", verbose=False)
    loaded = tf.saved_model.load(str(make.folder / "exported"))
    signature = make(loaded.signatures["serving_default"])
    values = list(signature(tf.constant(X)).values())
    return make(loaded.serve)(tf.constant(X)), values


def a_custom_training_loop(make: Make) -> Any:
    """Loss, metric and optimizer objects in a loop of one's own, with clipping and a schedule."""
    model = compiled()
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    optimizer = keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True, global_clipnorm=1.0)
    loss_of, accuracy = keras.losses.Huber(), keras.metrics.MeanAbsoluteError()

    @make.traced
    def step(x, y):
        with tf.GradientTape() as tape:
            prediction = model(x, training=True)
            loss = loss_of(y, prediction)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(y, prediction)
        return loss

    losses = [step(X[i : i + 8], Y[i : i + 8]) for i in range(0, 24, 8)]
    return losses, accuracy.result(), [np.array(v) for v in (*model.variables, *optimizer.variables)]


def steps_per_execution_and_accumulation(make: Make) -> Any:
    """Several batches a call, and gradients that accumulate over two of them."""
    optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
    model = compiled(optimizer, steps_per_execution=3)
    model.train_step = make(model.train_step)
    return model.fit(X, Y, batch_size=4, shuffle=False, verbose=0).history["loss"], state(model)
