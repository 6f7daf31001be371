"""Compares the losses and times of a Keras model, unplaced and auto-placed, step by step on the same data.

    python -m experiments.auto_place_keras --cluster=local --steps=50
    python -m experiments.auto_place_keras --cluster=logical

On local workers the placed step runs in their processes, one core each; the unplaced one in this process, with one
thread for each op, so that both compute the same bits, and as many ops at once as there are cores. Left to itself,
auto_place would keep the faster of the two (`report` says which); here the placed one runs in any case. Logical
devices share one process and say nothing about time.
Writes losses.json.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from absl import flags

import tf_placer
from experiments.main_program import out_flag, run, seed_flag
from tf_placer.base.files import write_atomically

FLAGS = flags.FLAGS
flags.DEFINE_enum("cluster", "local", ["local", "logical"], "where to place")
flags.DEFINE_integer("steps", 50, "training steps of each", lower_bound=2)
flags.DEFINE_float("budget_s", 10.0, "seconds of the search", lower_bound=0.001)
seed_flag("of weights, data and the search")
out_flag("out/auto_place_keras", "folder for losses.json and the kept plan")

LOGICAL_DEVICES = 2
BATCH, FEATURES, WIDTH, TOWERS = 64, 256, 512, 4


def build_step() -> tuple[Callable, keras.Model]:
    """A model of towers that meet at the end, and its training step with momentum."""
    keras.utils.set_random_seed(FLAGS.seed)
    inputs = keras.Input((FEATURES,))
    towers = [inputs] * TOWERS
    for _ in range(3):
        towers = [keras.layers.Dense(WIDTH, "relu")(x) for x in towers]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.concatenate(towers)))
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.apply(tape.gradient(loss, model.trainable_variables))
        return loss

    return step, model


def train(step: Callable, data: tf.Tensor) -> tuple[list[float], float]:
    """Losses of all steps, and the median seconds of those after the first."""
    losses, seconds = [], []
    for x in data:
        start = time.perf_counter()
        losses.append(float(step(x, x[:, :1])))
        seconds.append(time.perf_counter() - start)
    return losses, float(np.median(seconds[1:]))


def main(out: pathlib.Path) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if FLAGS.cluster == "local":
        cluster = tf_placer.Cluster.local()
    else:
        cluster = tf_placer.Cluster.logical(LOGICAL_DEVICES)
        host, logical = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(host, [logical] * LOGICAL_DEVICES)
    data = tf.random.stateless_normal([FLAGS.steps, BATCH, FEATURES], [FLAGS.seed, 1])

    step, model = build_step()
    losses, unplaced_s = train(step, data)
    weights = [value.tobytes() for value in model.get_weights()]

    step, model = build_step()
    placed = tf_placer.auto_place(
        step,
        cluster=cluster,
        budget_s=FLAGS.budget_s,
        budget_of="search",
        seed=FLAGS.seed,
        cache_dir=out / "plans",
        keep_unplaced=False,
    )
    placed_losses, placed_s = train(placed, data)
    print(placed.report())
    same_weights = weights == [value.tobytes() for value in model.get_weights()]
    differing = sum(a != b for a, b in zip(losses, placed_losses, strict=True))
    print(f"losses: {differing} of {len(losses)} steps differ; from {losses[0]:.6f} to {losses[-1]:.6f}")
    print(f"weights after training: {'equal, bit for bit' if same_weights else 'NOT equal'}")
    took = f"{1e3 * unplaced_s:.3f} ms unplaced (one thread), {1e3 * placed_s:.3f} ms placed (median)"
    print(f"a call takes {took}")
    found = {"unplaced": losses, "placed": placed_losses, "unplaced_s": unplaced_s, "placed_s": placed_s}
    write_atomically(out / "losses.json", json.dumps(found))
    if differing or not same_weights:
        raise SystemExit("the placed step computes other numbers")


if __name__ == "__main__":
    run(main)
