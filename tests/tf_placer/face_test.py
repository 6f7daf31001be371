"""The public face does what the README promises."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tf_placer

_README = pathlib.Path(__file__).absolute().parents[2] / "README.md"


@tf.function
def two_products(x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.matmul(x, x), tf.matmul(x + 1.0, x))


def test_a_function_goes_in_and_a_placed_graph_comes_out() -> None:
    item = tf_placer.Item.from_function(two_products, tf.ones((64, 64)))
    cluster = tf_placer.Cluster.preset("p100x2")
    problem = tf_placer.build_problem(item, cluster)
    result = tf_placer.search(problem, method="random", budget_evaluations=64, seed=0)
    assert isinstance(result, tf_placer.SearchResult)
    assert result.evaluations == 64
    assert result.lower_bound_s <= result.runtime_s

    measurement = tf_placer.SimulatedEvaluator(problem).evaluate(result.placement.device_of_unit[np.newaxis])
    assert measurement.status[0] == tf_placer.Status.OK
    assert measurement.runtime_s[0] == result.runtime_s

    graph_def = tf_placer.apply_placement(item, result.placement)
    assert {node.device for node in graph_def.node} <= {device.name for device in cluster.devices}


def test_a_function_of_unknown_shape_is_refused() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def positive(x: tf.Tensor) -> tf.Tensor:
        return tf.boolean_mask(x, x > 0.0)

    with pytest.raises(tf_placer.InputError) as error:
        tf_placer.Item.from_function(positive, tf.constant([1.0, -1.0]))
    assert "\n" not in str(error.value)


def test_a_device_without_a_kernel_is_refused() -> None:
    @tf.function
    def joined(words: tf.Tensor) -> tf.Tensor:
        return tf.strings.reduce_join(words)

    item = tf_placer.Item.from_function(joined, tf.constant(["a", "b"]))
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("p100x1"))
    on_gpu = np.zeros(problem.num_units, np.int32)  # a preset lists its GPUs first
    with pytest.raises(tf_placer.InputError, match=r"has no kernel on .*GPU:0; it can run on .*CPU:0"):
        tf_placer.Placement(problem, on_gpu)


def readme_block(language: str) -> str:
    """The one block of a language in the README."""
    blocks = re.findall(rf"```{language}\n(.*?)```", _README.read_text(encoding="utf8"), re.DOTALL)
    assert len(blocks) == 1, f"the README has one {language} example"
    return str(blocks[0])


def test_the_readmes_cluster_file_is_one(tmp_path: pathlib.Path) -> None:
    (tmp_path / "box.toml").write_text(readme_block("toml"))
    cluster = tf_placer.Cluster.from_file(tmp_path / "box.toml")
    assert [device.type for device in cluster.devices] == ["GPU", "GPU", "CPU"]
    assert cluster.devices[0].memory_bytes == 12_000_000_000  # replaces the model's


@pytest.mark.slow
def test_the_readmes_example_runs(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", readme_block("python")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_README.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "ms a step" in done.stdout
    assert (tmp_path / "placement.json").is_file()
