"""The public face does what it promises."""

import inspect
import os
import pathlib
import subprocess
import sys
import tomllib
import typing

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tf_placer import transform, workloads
from tf_placer.automatic.config import VARIABLES, AutoPlaceConfig, Settings
from tf_placer.search.methods import BUDGETS, OBJECTIVES
from tf_placer.version import VERSION

ROOT = pathlib.Path(tf_placer.__file__).parent.parent


@tf.function
def two_products(x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.matmul(x, x), tf.matmul(x + 1.0, x))


def test_a_function_goes_in_and_a_placed_graph_comes_out():
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


def test_a_function_whose_sizes_depend_on_data_can_be_placed():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def positive(x: tf.Tensor) -> tf.Tensor:
        return tf.boolean_mask(x, x > 0.0)

    item = tf_placer.Item.from_function(positive, tf.constant([1.0, -1.0]))
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("p100x2"))
    assert sum(problem.estimated_sizes.values()) > 0
    assert tf_placer.search(problem, "single", budget_evaluations=3).runtime_s > 0


def test_a_device_without_a_kernel_is_refused():
    joined = tf.function(lambda words: tf.strings.reduce_join(words))
    item = tf_placer.Item.from_function(joined, tf.constant(["a", "b"]))
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("p100x1"))
    on_gpu = np.zeros(problem.num_units, np.int32)  # a preset lists its GPUs first
    with pytest.raises(tf_placer.InputError, match=r"has no kernel on .*GPU:0; it can run on .*CPU:0"):
        tf_placer.Placement(problem, on_gpu)


def test_the_face_is_what_completion_shows():
    assert [name for name in dir(tf_placer) if not name.startswith("__")] == sorted(tf_placer.__all__)
    assert {"__all__", "__doc__", "__version__"} <= set(dir(tf_placer))
    assert [name for name in dir(workloads) if not name.startswith("__")] == sorted(workloads.__all__)


def test_the_version_is_that_of_the_package():
    dynamic = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "dynamic"
    ]
    assert dynamic["version"] == {"attr": "tf_placer.version.VERSION"}
    assert tf_placer.__version__ == VERSION


def test_values_print_in_a_line_and_show_as_small_tables():
    item = tf_placer.Item.from_function(two_products, tf.ones((64, 64)), name="<a & b>")
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("p100x2"))
    result = tf_placer.search(problem, method="random", budget_evaluations=16, seed=0)
    plan = result.placement
    ordered = tf_placer.Placement(problem, plan.device_of_unit, np.arange(problem.num_ops, dtype=np.int32))
    measurement = tf_placer.SimulatedEvaluator(problem).evaluate(plan.decisions)
    for value in (item, problem, result, plan, ordered, plan.decisions, measurement):
        assert "\n" not in repr(value) and len(repr(value)) < 200, repr(value)
    assert repr(problem) == (
        f"<Problem '<a & b>': {problem.num_ops} ops in {problem.num_units} units on 3 devices of 'p100x2'>"
    )
    counts = np.bincount(plan.device_of_op, minlength=3)
    used = ", ".join(
        f"{ops} on {label}" for label, ops in zip(problem.cluster.labels, counts, strict=True) if ops
    )
    assert repr(plan) == f"<Placement of '<a & b>': ops {used}>"
    assert repr(ordered) == f"<Placement of '<a & b>': ops {used}; an order>"
    assert plan._repr_html_().count("<tr>") == 4  # a heading, and a row for each device
    assert result._repr_html_().startswith("<table><tr><th>step (simulated)</th><th>time</th></tr>")
    assert "16 placements tried" in repr(result)


def test_settings_of_auto_place_are_keywords():
    fields = set(inspect.signature(AutoPlaceConfig).parameters)
    hints = typing.get_type_hints(Settings)
    assert set(hints) == fields
    allowed = {"budget_of": BUDGETS, "variables": VARIABLES, "objective": OBJECTIVES}
    for name, values in {**allowed, "batch_statistics": transform.BATCH_STATISTICS}.items():
        assert set(typing.get_args(hints[name])) == set(values), name
    keywords = inspect.signature(tf_placer.auto_place).parameters
    assert set(keywords) == {"fn", *fields}
    assert keywords["budget_s"].default == 60.0
    assert keywords["budget_s"].kind is inspect.Parameter.KEYWORD_ONLY


# What mypy must find is marked, and a mark where it finds nothing is an error.
_USERS_PROGRAM = """
import tensorflow as tf
import tf_placer

version: str = tf_placer.__version__

@tf_placer.auto_place
def bare(x: tf.Tensor) -> tf.Tensor:
    return x

@tf_placer.auto_place(cluster="local", budget_s=60, pins={"a/.*": "GPU:0"}, memory_limit={"GPU:0": "10GB"})
def with_settings(x: tf.Tensor) -> tf.Tensor:
    return x

called = tf_placer.auto_place(lambda x: x, parts="auto", cache_dir=None)
placement: tf_placer.Placement = with_settings.placement
text: str = bare.report() + called.report("report.html")
wrong: int = bare.report()  # type: ignore[assignment]
tf_placer.auto_place(budget=60)  # type: ignore[call-overload]
tf_placer.auto_place(lambda x: x, budget_s="60")  # type: ignore[call-overload]
tf_placer.auto_place(variables="moved")  # type: ignore[call-overload]
tf_placer.auto_places  # type: ignore[attr-defined]
result = tf_placer.search(tf_placer.Problem.load("FILE"), method="hdp", budget_s=60)
result.runtime  # type: ignore[attr-defined]
"""


@pytest.mark.slow
def test_mypy_checks_a_users_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(_USERS_PROGRAM)
    # As of an installed package: what mypy says about tf_placer itself is not the user's.
    options = [
        "--config-file=",
        "--warn-unused-ignores",
        "--ignore-missing-imports",
        "--follow-imports=silent",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={tmp_path}/cache", str(program)],
        env={**os.environ, "MYPYPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
