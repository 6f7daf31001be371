"""Peaks before anything runs, and the largest batch: a batch that was tried is the program traced with that batch."""

import io

import numpy as np
import pytest
import rich.console

from tf_placer import workloads
from tf_placer.__main__ import run
from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.search.memory import MOST_EXAMPLES, device_peaks, largest_batches
from tf_placer.transform.split.split_batch import split_program

K40S = Cluster.preset("k40x2")
LARGER = {"transformer_small": 24, "inception_v3_small": 5, "rnnlm_2_small": 40, "transformer_xl_2_small": 3}


@pytest.mark.parametrize(
    ("name", "batch"),
    [("dense_small", 13), *(pytest.param(*row, marks=pytest.mark.medium) for row in LARGER.items())],
)
def test_another_batch_has_the_peaks_of_the_program_traced_with_it(name, batch):
    resized = split_program(workloads.build(name), 2).whole_of(batch)
    traced = split_program(workloads.build(name, batch=batch), 2).straight.item
    # A loss's gradient of one number for each example is made of constants, so it keeps its size.
    peaks, expected = (device_peaks(analytic_problem(item, K40S))[0] for item in (resized, traced))
    np.testing.assert_allclose(peaks, expected, rtol=4e-3)


def test_the_largest_batch_fits_and_one_more_example_does_not():
    cluster = K40S.with_memory_limit({"GPU:0": "40MB", "GPU:1": "40MB"})
    _, one, on_all, again = largest_batches(workloads.build("two_towers"), cluster)
    assert 0 < one < again < MOST_EXAMPLES and one < on_all < MOST_EXAMPLES
    for examples, fits_one in ((one, True), (one + 1, False), (on_all, False)):
        problem = analytic_problem(workloads.build("two_towers", batch=examples), cluster)
        single, least = device_peaks(problem)
        assert (single <= cluster.capacity_bytes())[cluster.accelerators()].any() == fits_one
        assert (least <= cluster.capacity_bytes()).all()


def told(*flags):
    console = rich.console.Console(file=io.StringIO(), width=160)
    assert run(["memory", "--cluster=k40x2", *flags], console) == 0
    return console.file.getvalue()


def test_the_command_says_what_is_missing_and_what_fits():
    text = told("--workload=two_towers", *(f"--memory_limit=GPU:{gpu}=40MB" for gpu in range(2)))
    assert "The batch is 1024. The largest that fits: 536 on one device, 1181 over all, " in text
    assert "No single device holds the step: GPU:0 has 38.1 MiB and would need 58.1 MiB" in text
    assert [line[2:7] for line in text.splitlines() if line[0] == "│"] == ["GPU:0", "GPU:1", "CPU:0"]
    assert f"{MOST_EXAMPLES} or more on one device" in told("--workload=dense_small")


def test_a_program_without_a_batch_is_told_so(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(
        "import tensorflow as tf\n\nv = tf.Variable(tf.ones([9, 9]))\nstep = tf.function(lambda: v @ v)\n"
    )
    assert "The largest batch is not known: 'step' has no input with several examples" in told(
        f"{script}:step"
    )
