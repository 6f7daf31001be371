"""State that others own, too: checkpoints, averages, optimizers, modules, copies, metrics, datasets of them."""

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.corpus.program import Make, runs_as_it_is

X = tf.constant([[3.0, 4.0], [0.5, -1.0]])


def weights() -> tf.Variable:
    """A small matrix."""
    return tf.Variable([[1.0, 2.0], [-0.5, 0.25]])


def step_of(make: Callable[[Any], Any], v: tf.Variable, w: tf.Variable) -> Any:
    """A step that reads both and writes both."""

    @make
    @tf.function
    def step(x):
        v.assign_add(x @ w)
        w.assign_sub(0.1 * v)
        return tf.reduce_sum(w)

    return step


def written_summaries(folder: pathlib.Path) -> list[tuple[int, str, np.ndarray]]:
    """Step, tag and value of each."""
    (file,) = folder.iterdir()
    events = tf.compat.v1.train.summary_iterator(str(file))
    return [(e.step, v.tag, tf.make_ndarray(v.tensor)) for e in events for v in e.summary.value]


def a_checkpoint_manager(make: Make) -> Any:
    """Numbered checkpoints during training; the best is restored, and training goes on from there."""
    v, w = weights(), weights()
    step = step_of(make, v, w)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(v=v, w=w), str(make.folder / "checkpoints"), max_to_keep=2
    )
    for number in range(3):
        step(X)
        manager.save(checkpoint_number=number)
    kept = [path.rpartition("-")[2] for path in manager.checkpoints]
    step(X)
    manager.checkpoint.restore(manager.checkpoints[0]).assert_consumed()
    restored = v.numpy(), w.numpy()
    return kept, restored, step(X), v.numpy(), manager.restore_or_initialize() == manager.latest_checkpoint


def restored_before_there_are_variables(make: Make) -> Any:
    """A checkpoint is restored first; the variables, which the first call makes, take their values from it."""
    kept = tf.train.Checkpoint(v=weights(), w=tf.Variable([7.0, 8.0])).write(str(make.folder / "kept"))

    class Module(tf.Module):
        def build(self, x):
            if not hasattr(self, "v"):
                self.v = tf.Variable(tf.zeros_like(x))
                self.w = tf.Variable(tf.zeros([2]))

        def add(self, x):
            self.build(x)
            return self.v.assign_add(x) * self.w

    module = Module()
    status = tf.train.Checkpoint(module).read(kept)
    f = make.traced(module.add)
    results = [f(X), f(X)]
    status.assert_consumed()
    return results, module.v.numpy(), module.w.numpy()


def restored_into_keras_slots_later(make: Make) -> Any:
    """Weights and optimizer slots are read from a checkpoint after both were placed."""

    def trained(steps: int) -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((2,)), layers.Dense(3), layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)

        @make.traced
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x) ** 2)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        losses = [step(X) for _ in range(steps)]
        variables = [v.value for v in (*model.variables, *optimizer.variables)]
        return tf.train.Checkpoint(variables=variables), step, losses, variables

    first, step, losses, variables = trained(2)
    path = first.write(str(make.folder / "kept"))
    second, other_step, other_losses, others = trained(1)
    second.read(path).assert_consumed()
    return losses, other_losses, step(X), other_step(X), [v.numpy() for v in (*variables, *others)]


def an_average_beside_the_step(make: Make) -> Any:
    """An exponential moving average that eager code updates between placed steps, and reads back."""
    v, w = weights(), weights()
    step = step_of(make, v, w)
    average = tf.train.ExponentialMovingAverage(0.5)
    average.apply([v])
    means = []
    for _ in range(3):
        step(X)
        average.apply([v, w] if len(means) else [v])
        means.append(average.average(v).numpy())
    v.assign(average.average(v))
    return means, step(X), average.average(w).numpy(), v.numpy()


def an_average_that_is_placed(make: Make) -> Any:
    """The update of the average is placed, and the step is not."""
    v, w = weights(), weights()
    average = tf.train.ExponentialMovingAverage(0.9, zero_debias=False)
    average.apply([v, w])

    @make.traced
    def update():
        average.apply([v, w])

    plain = step_of(tf.function, v, w)
    results = []
    for _ in range(3):
        plain(X)
        update()
        results += [average.average(v).numpy(), average.average(w).numpy()]
    return results


def an_optimizer_on_both_sides(make: Make) -> Any:
    """Keras' optimizer applies gradients eagerly and in a placed step, by turns."""
    w = keras.Variable(np.ones((2, 2), np.float32))
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build([w])

    def gradients() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(X @ w.value) ** 2)
        return tape.gradient(loss, [w.value])

    @make.traced
    def step():
        optimizer.apply(gradients(), [w])

    for _ in range(3):
        optimizer.apply(gradients(), [w])
        step()
        optimizer.learning_rate = float(optimizer.learning_rate) * 0.5
    return [v.numpy() for v in (w, *optimizer.variables)]


def optimizers_of_tensorflow_1(make: Make) -> Any:
    """Momentum and Adam of ``compat.v1``, eagerly and in placed steps; their slots are made by the first call."""

    def trained(optimizer: Any) -> Any:
        w = weights()

        def update(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(x @ w) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, w), w)])
            return loss

        step = make.traced(update)
        losses = step(X), update(X), step(X)
        slots = [optimizer.get_slot(w, name).numpy() for name in optimizer.get_slot_names()]
        return losses, w.numpy(), slots

    train = tf.compat.v1.train
    return trained(train.MomentumOptimizer(0.1, 0.9)), trained(train.AdamOptimizer(0.1))


def a_module_in_two_models(make: Make) -> Any:
    """Two models share a module; each has a placed step, and a third one is not placed."""
    shared = tf.Module()
    shared.w = weights()

    class Model(tf.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.body, self.scale = shared, tf.Variable(scale)

        def step(self, x):
            self.body.w.assign_sub(0.1 * (x @ self.body.w) * self.scale)
            self.scale.assign_add(0.5)
            return tf.reduce_sum(self.body.w)

    one, other, third = Model(1.0), Model(2.0), Model(3.0)
    steps = make.traced(one.step), make.traced(other.step), tf.function(third.step)
    results = [step(X) for _ in range(3) for step in steps]
    return results, shared.w.numpy(), [len(model.trainable_variables) for model in (one, other)]


def layers_in_two_keras_models(make: Make) -> Any:
    """An encoder that two Keras models train by turns, placed and not."""
    encoder = layers.Dense(4, "tanh")
    models = []
    for units in (1, 2):
        model = keras.Sequential([keras.Input((2,)), encoder, layers.Dense(units)])
        model.compile("sgd", "mse", jit_compile=False)
        models.append(model)
    x = np.asarray(X)
    before = models[1].train_on_batch(x, np.ones((2, 2)))
    models[0].train_step = make.of_plain(models[0].train_step)
    losses = []
    for _ in range(3):
        losses.append(models[0].train_on_batch(x, np.ones((2, 1))))
        losses.append(models[1].train_on_batch(x, np.ones((2, 2))))
        losses.append(models[1].predict_on_batch(x))
    return before, losses, encoder.get_weights()


def copies_of_a_module(make: Make) -> Any:
    """A deep copy after placing has variables of its own; a shallow one has the same."""

    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = weights()
            self.parts = [tf.Variable(1.0), {"a": tf.Variable(2.0)}]

    module = Module()
    f = make.traced(lambda x: module.w.assign_add(x) * module.parts[0] + module.parts[1]["a"].assign_add(1.0))
    first = f(X)
    shallow, deep = copy.copy(module), copy.deepcopy(module)
    deep.w.assign_add(X * 10.0)
    shallow.parts[0].assign(5.0)
    second = f(X)
    return first, second, [v.numpy() for m in (module, shallow, deep) for v in m.variables]


def variables_in_lists_and_dicts(make: Make) -> Any:
    """Tracked containers: a variable in them is replaced after the first call, the function keeps the old one."""
    module = tf.Module()
    module.all, module.by_name = [weights(), weights()], {"w": weights()}

    @make.traced
    def f(x):
        total = tf.add_n([v * x for v in module.all])
        module.all[1].assign_add(x)
        return total + module.by_name["w"].assign_sub(x)

    first, old = f(X), module.all[0]
    module.all[0] = tf.Variable(tf.zeros([2, 2]))
    module.by_name["other"] = tf.Variable(9.0)
    return first, f(X), old.numpy(), [v.numpy() for v in module.all], module.by_name["w"].numpy()


def weights_are_set(make: Make) -> Any:
    """``set_weights``, ``load_weights`` and ``assign`` after placing are seen by the placed step, and by Keras."""
    model = keras.Sequential([keras.Input((2,)), layers.Dense(3, "tanh"), layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    early = model.get_weights()
    model.save_weights(make.folder / "early.weights.h5")
    f = make.traced(lambda x: model(x))
    x, results = np.asarray(X), []
    results += [f(X), model.predict(x, verbose=0)]
    model.fit(x, x[:, :1], epochs=2, verbose=0)
    results += [f(X), model.predict(x, verbose=0)]
    model.set_weights([weight * 2.0 for weight in early])
    results += [f(X), model.predict(x, verbose=0)]
    model.load_weights(make.folder / "early.weights.h5")
    results += [f(X), model.predict(x, verbose=0)]
    model.layers[0].kernel.assign(tf.zeros([2, 3]))
    return [*results, f(X), model.predict(x, verbose=0)]


def a_model_that_predicted_before(make: Make) -> Any:
    """Keras' own functions were made before the step was placed, and go on after it."""
    model = keras.Sequential([keras.Input((2,)), layers.Dense(3, "tanh"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], jit_compile=False)
    x = np.asarray(X)
    y = x[:, :1]
    results = [model.predict(x, verbose=0), model.evaluate(x, y, verbose=0)]

    @make.traced
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    for _ in range(2):
        results += [step(x, y), model.predict(x, verbose=0), model.evaluate(x, y, verbose=0)]
        results += [model.fit(x, y, verbose=0).history["loss"], step(x, y)]
    return results, model.get_weights()


def metrics_on_both_sides(make: Make) -> Any:
    """A metric is updated by a placed function and eagerly, read, and reset."""
    mean, auc = keras.metrics.Mean(), keras.metrics.AUC(num_thresholds=5)

    @make.traced
    def update(y, p):
        mean.update_state(p)
        auc.update_state(y, p)
        return mean.result()

    y, p = tf.constant([0.0, 1.0, 1.0]), tf.constant([0.2, 0.6, 0.4])
    auc.update_state(y, p)
    results = [update(y, p), update(y, p * 0.5)]
    mean.update_state(9.0)
    results += [mean.result(), auc.result()]
    mean.reset_state()
    auc.reset_state()
    return [*results, mean.result(), update(y, p), auc.result(), [v.numpy() for v in auc.variables]]


def sparse_and_aggregated_variables(make: Make) -> Any:
    """A variable with an aggregation is updated row by row, inside and outside."""
    on_write = tf.VariableSynchronization.ON_WRITE
    table = tf.Variable(tf.zeros([6, 2]), aggregation=tf.VariableAggregation.SUM, synchronization=on_write)

    @make.traced
    def f(i, rows):
        table.scatter_add(tf.IndexedSlices(rows, i))
        table.scatter_max(tf.IndexedSlices(rows * 0.5, i + 1))
        return tf.reduce_sum(table, 1)

    results = []
    for k in range(3):
        results.append(f(tf.constant([k, k + 2]), tf.ones([2, 2]) * float(k + 1)))
        table.scatter_mul(tf.IndexedSlices(tf.constant([[0.5, 2.0]]), tf.constant([k])))
    return results, table.numpy()


@runs_as_it_is("shape")
def a_variable_that_changes_its_shape(make: Make) -> Any:
    """A variable without a static shape takes values of other sizes, from inside and outside."""
    v = tf.Variable([1.0, 2.0], shape=tf.TensorShape([None]))

    @make.traced
    def grow(x):
        v.assign(tf.concat([v, x], 0))
        return tf.reduce_sum(v), tf.size(v)

    results = [grow(tf.constant([3.0])), grow(tf.constant([4.0]))]
    v.assign([5.0])
    return results, grow(tf.constant([6.0])), v.numpy()


def variables_of_every_type(make: Make) -> Any:
    """Integers, booleans, strings and complex numbers are kept in variables, and updated on both sides."""
    count, flag = tf.Variable(3, dtype=tf.int64), tf.Variable(False)
    text, z = tf.Variable("a"), tf.Variable(1.0 + 2.0j, dtype=tf.complex64)

    @make.traced
    def f(x):
        count.assign_add(x)
        flag.assign(count % 2 == 0)
        text.assign(tf.strings.join([text, tf.as_string(count)]))
        z.assign(z * tf.complex(0.0, 1.0))
        return count * 2, tf.logical_not(flag), tf.strings.length(text), tf.abs(z)

    results = [f(tf.constant(1, tf.int64))]
    text.assign("b")
    count.assign(10)
    return results, f(tf.constant(2, tf.int64)), [v.numpy() for v in (count, flag, text, z)]


def saved_while_it_trains(make: Make) -> Any:
    """A SavedModel is written between two placed steps: it has the values of that moment."""
    module = tf.Module()
    module.v, module.w = weights(), weights()
    module.serve = tf.function(lambda x: x @ module.w + module.v, input_signature=[tf.TensorSpec([2, 2])])
    module.serve(X)
    step = step_of(make, module.v, module.w)
    answers = []
    for i in range(2):
        step(X)
        tf.saved_model.save(module, str(make.folder / f"saved_{i}"))
        answers.append(module.serve(X))
        step(X)
    loaded = [tf.saved_model.load(str(make.folder / f"saved_{i}")) for i in range(2)]
    return answers, [one.serve(X) for one in loaded], [one.w.numpy() for one in loaded], module.serve(X)


def eager_steps_without_waiting(make: Make) -> Any:
    """Eager ops that are queued and not waited for are done before the placed step reads."""
    v, w = weights(), weights()
    step = step_of(make, v, w)
    results = []
    with tf.experimental.async_scope():
        for _ in range(5):
            v.assign_add(X)
            results.append(step(X))
            w.assign_add(X * 0.1)
    return results, v.numpy(), w.numpy()


def summaries_beside_it(make: Make) -> Any:
    """Eager code writes summaries of the variables between placed steps."""
    v, w = weights(), weights()
    step = step_of(make, v, w)
    writer = tf.summary.create_file_writer(str(make.folder / "logs"))
    with writer.as_default():
        for i in range(3):
            tf.summary.scalar("loss", step(X), step=i)
            tf.summary.write("v", v, step=i)
    writer.close()
    return written_summaries(make.folder / "logs")
