"""What a user does first, in one process: place a function, run it placed, export and load a model. Prints "done"."""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf

import tf_placer

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


class Model(tf.Module):
    """Two products that can run side by side, and variables."""

    def __init__(self) -> None:
        self.weights = [tf.Variable(tf.ones([8, 8])) for _ in range(2)]

    @tf.function(input_signature=[tf.TensorSpec([4, 8])])
    def step(self, x: tf.Tensor) -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(x @ weight) for weight in self.weights])


def main(folder: pathlib.Path) -> None:
    model, x = Model(), tf.ones([4, 8])
    expected = model.step(x).numpy()
    item = tf_placer.Item.from_function(model.step, x)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("k40x2"), costs="analytic")
    for method in ("auto", "tabular"):  # the second draws from a distribution
        result = tf_placer.search(problem, method, budget_evaluations=64, seed=0)
        assert 0 < result.lower_bound_s <= result.runtime_s, result

    placed = tf_placer.auto_place(
        tf.function(lambda batch: model.step(batch)),
        cluster=tf_placer.Cluster.logical(2),
        budget_s=2,
        cache_dir=folder / "plans",
        keep_unplaced=False,
    )
    assert placed(x).numpy() == expected
    assert placed.placement.problem.num_ops > 0

    tf.saved_model.save(model, str(folder / "model"), signatures=model.step)
    source = tf_placer.Item.from_saved_model(folder / "model")
    served = tf_placer.search(
        tf_placer.build_problem(source, tf_placer.Cluster.logical(2)), "single", budget_evaluations=4
    )
    tf_placer.export_saved_model(folder / "model", folder / "placed", served.placement)
    again = tf_placer.load_saved_model(folder / "placed")
    (value,) = again.signatures["serving_default"](x).values()
    assert value.numpy() == expected
    print("done", sys.version_info[:2])


main(pathlib.Path(sys.argv[1]))
