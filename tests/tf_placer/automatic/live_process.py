"""Auto-places functions on worker processes, its own or servers that run already, and prints what differs, as JSON.

A process of its own, because it stays connected to them. Its arguments: "local" or "remote", and a folder for plans.
"""

import contextlib
import math
import os
import pathlib
import re
import socket
import sys
import time
import unittest.mock
import warnings
from collections.abc import Callable, Iterator

import tensorflow as tf

import tf_placer
from tests.logical_devices import report
from tests.tf_placer.automatic.told import told_by
from tests.tf_placer.workers.servers import cluster_file
from tf_placer.automatic.signature import TIMED_STEPS, WARMUP_STEPS
from tf_placer.calibration.build_problem import build_problem
from tf_placer.planning import outcome
from tf_placer.workers import fork_server
from tf_placer.workers.fork_server import _listeners
from tf_placer.workers.local_workers import LocalWorkers

SETTINGS: dict = {"method": "random", "budget_s": 1.0}
SMALL_BUDGET_S, SMALL_WAIT_S = 5.0, 15.0


def towers(weights: tf.Variable) -> Callable:
    @tf.function
    def step(x):
        left, right = x, x
        for _ in range(3):
            left, right = tf.tanh(left @ weights), tf.sin(right @ weights)
        weights.assign_add(tf.reduce_mean(left) * tf.ones_like(weights))
        return {"sum": tf.reduce_sum(left + right), "right": right}

    return step


def the_plan_runs_on_the_workers() -> bool:
    start = tf.random.stateless_normal([256, 256], [1, 2])
    x = tf.random.stateless_normal([32, 256], [3, 4])
    weights = tf.Variable(start)
    expected = [towers(weights)(x) for _ in range(3)]
    weights_after = weights.numpy()

    weights = tf.Variable(start)
    placed = tf_placer.auto_place(towers(weights), keep_unplaced=False, **SETTINGS)
    results = [placed(x) for _ in range(3)]
    on_workers = all("/job:worker/" in device for device in placed.placement.device_names.values())
    same = all(
        tf.reduce_all(one[key] == other[key])
        for one, other in zip(results, expected, strict=True)
        for key in one
    )
    moved = "/job:worker/" in weights.device
    is_local = SETTINGS["cluster"].kind == "local"  # servers elsewhere have oneDNN as they were started
    found = placed.audit(values=is_local)
    audited = found.in_place > 0 and (not is_local or found.values.exact.relative == 0)
    text = placed.report()
    return (
        on_workers
        and same
        and moved
        and audited
        and (weights.numpy() == weights_after).all()
        and "alone: the plan " in text
        and re.search("raced: the plan .* ms, .*as it is, whole machine .* ms a step", text) is not None
        and "Data parallel over 2 CPU workers would take" in text
    )


def only_this_machine_reaches_this_process() -> bool:
    """Attached to workers of its own; servers elsewhere must reach it."""
    devices = []
    for listener in _listeners().values():
        with socket.socket(fileno=os.dup(listener)) as one:
            devices.append(one.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16))
    return bool(devices) and set(devices) == {b"lo\0"}


def what_is_faster_as_it_was_is_kept() -> bool:
    weights = tf.Variable(2.0)

    @tf.function
    def tiny(x):
        return weights.assign_add(x)

    placed = tf_placer.auto_place(tiny, **SETTINGS)
    total, told = told_by(lambda: float(placed(tf.constant(1.0))))
    kept = placed.report().startswith("tiny is kept as it was: the plan takes ")
    return total == 3.0 and "/job:localhost/" in weights.device and kept and _tells_both_times(told)


def _tells_both_times(told: list[str]) -> bool:
    (text,) = told
    pattern = r"runs as it is: a plan was found and is not clearly faster .*\(.* ms a step, .* ms "
    return re.search(pattern, text) is not None


def the_first_calls_have_the_last_word() -> bool:
    """A step that the race takes for faster, which it is not: every call runs once, and the variable comes back."""
    weights = tf.Variable(0.0)

    @tf.function
    def tried(x):
        weights.assign_add(x)
        return weights * 2.0

    settings = {**SETTINGS, "pins": {".*": "task:1/device:CPU:0"}}
    one, calls, where = tf.constant(1.0), 2 * (WARMUP_STEPS + TIMED_STEPS), []
    placed = tf_placer.auto_place(tried, **settings)
    with unittest.mock.patch("tf_placer.planning.outcome.clearly_slower", lambda *_: True):
        totals = [float(placed(one))]
    where.append(weights.device)
    said_first = placed.report().startswith("tried is on trial, ")
    later, told = told_by(lambda: [(float(placed(one)), weights.device) for _ in range(calls + 1)])
    totals += [total for total, _ in later]
    where += [device for _, device in later]
    ran_once = totals == [2.0 * (i + 1) for i in range(calls + 2)]
    went_and_came = [re.search(r"/job:(\w+)/", device)[1] for device in where]
    half = calls // 2
    expected = ["localhost"] * half + ["worker"] * half + ["localhost"] * 2
    # The next one does not try again.
    again = tf_placer.auto_place(tf.function(tried.python_function), **settings)
    _, told_again = told_by(lambda: again(one))
    return (
        said_first
        and ran_once
        and went_and_came == expected
        and _tells_both_times(told)
        and _tells_both_times(told_again)
        and "called: the plan " in again.report()
        and float(weights) == calls + 3
    )


def a_verdict_that_is_an_error_runs_no_step_again() -> bool:
    """The warning of the verdict is an error where the user says so; the step that it comes with has run once."""
    weights = tf.Variable(0.0)
    strictly_tried = tf.function(lambda x: weights.assign_add(x) + 0.0)
    placed = tf_placer.auto_place(strictly_tried, **SETTINGS, pins={".*": "task:1/device:CPU:0"})
    calls, raised = 2 * (WARMUP_STEPS + TIMED_STEPS) + 2, 0
    with unittest.mock.patch("tf_placer.planning.outcome.clearly_slower", lambda *_: True):
        placed(tf.constant(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_placer.RunsAsItIs)
        for _ in range(calls):
            try:
                placed(tf.constant(1.0))
            except tf_placer.RunsAsItIs:
                raised += 1
    return raised == 1 and float(weights) == calls + 1


def a_variable_that_a_dataset_reads_stays_here() -> bool:
    """The plan for the workers is made around it: the step reads and writes it in this process, as the dataset does."""
    held, free = tf.Variable(1.0), tf.Variable([1.0, 2.0])
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    iterator = iter(
        tf.data.Dataset.range(3).map(lambda i: held + tf.cast(i, tf.float32)).with_options(options)
    )

    @tf.function
    def around(x):
        free.assign_add(x * held)
        held.assign_add(1.0)
        return tf.reduce_sum(free)

    placed, found = tf_placer.auto_place(around, keep_unplaced=False, **SETTINGS), []
    for _ in range(3):
        found += [float(next(iterator)), float(placed(tf.constant([1.0, 1.0])))]
    stays = (
        f"stays on {held.device}, and the plan is made around it: a tf.data dataset reads it"
        in placed.report()
    )
    return (
        found == [1.0, 5.0, 3.0, 9.0, 5.0, 15.0]
        and "/job:localhost/" in held.device
        and "/job:worker/" in free.device
        and stays
    )


def eager_ops_and_placed_calls_keep_their_order() -> bool:
    """A placed call sees the update before it; where that is not waited for, one in six does not."""
    weights, x = tf.Variable(tf.zeros([2, 2])), tf.ones([1, 2])
    pins = {".*": "task:1/device:CPU:0"}
    read = tf.function(lambda x: tf.reduce_sum(x @ weights))
    placed = tf_placer.auto_place(read, keep_unplaced=False, **SETTINGS, pins=pins)
    seen = [float(placed(x))]
    for _ in range(400):
        weights.assign_add(tf.ones_like(weights))
        seen.append(float(placed(x)))
    return "/job:worker/" in weights.device and seen == [4.0 * i for i in range(401)]


def inside_another_function_there_is_no_trial() -> bool:
    """Calls there cannot be timed: the race has the last word, also about a trial that has begun."""
    weights = tf.Variable(0.0)

    @tf.function
    def inner(x):
        return weights.assign_add(x) * 3.0

    settings = {**SETTINGS, "pins": {".*": "task:1/device:CPU:0"}}
    placed, one = tf_placer.auto_place(inner, **settings), tf.constant(1.0)
    with unittest.mock.patch("tf_placer.planning.outcome.clearly_slower", lambda *_: True):
        first = float(placed(one))
    before = weights.device
    second, third = float(tf.function(lambda x: placed(x) + 1.0)(one)), float(placed(one))
    return (
        (first, second, third) == (3.0, 7.0, 9.0)
        and "/job:localhost/" in before
        and "/job:worker/" in weights.device
        and placed.report().startswith("inner is placed: ")
    )


def a_small_budget_is_a_short_wait() -> bool:
    """A step of two layers, of which the op times are kept and no plan is."""
    weights = [tf.Variable(tf.random.stateless_normal([256, 256], [i, i])) for i in range(2)]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            value = x
            for weight in weights:
                value = tf.nn.relu(value @ weight)
            loss = tf.reduce_mean(value**2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    x = tf.ones([64, 256])
    settings = {**SETTINGS, "method": "auto", "budget_s": SMALL_BUDGET_S}
    build_problem(tf_placer.Item.from_function(step, x), SETTINGS["cluster"])  # keeps the profile
    for server in fork_server._own_servers():
        server.close()  # as in a process in which no worker was started before
    begun_s = time.monotonic()
    placed = tf_placer.auto_place(step, **settings)
    placed(x)
    took_s = time.monotonic() - begun_s
    if took_s > SMALL_WAIT_S:
        raise RuntimeError(f"{took_s:.1f} s")
    return "in turn on the runtime" in placed.report()


def what_is_older_than_the_connection_lives_on() -> bool:
    """The first function that is placed connects this process to the workers; its table and what is beside it stay."""
    entries = tf.lookup.KeyValueTensorInitializer(["a"], [3.0])
    table, beside, held = tf.lookup.StaticHashTable(entries, -1.0), tf.Variable(1.0), tf.Variable(1.0)
    weights, words = tf.Variable([1.0, 1.0]), tf.constant(["a", "b"])
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    iterator = iter(tf.data.Dataset.range(9).map(lambda _: held * 1.0).with_options(options))
    assigned = tf.function(lambda value: beside.assign(value))
    assigned(1.0)

    @tf.function
    def step():
        weights.assign_add(table.lookup(words) * held)
        return tf.reduce_sum(weights) * 1.0

    placed, found = tf_placer.auto_place(step, keep_unplaced=False, **SETTINGS), []
    found.append(float(placed()))
    beside.assign(2.0)
    found.append(float(beside))
    assigned(tf.constant(3.0))
    found.append(float(beside))
    held.assign(4.0)
    found += [float(next(iterator)), float(placed())]
    weights.assign([0.0, 0.0])
    found.append(float(placed()))
    is_connected = "/job:worker/" in weights.device and "/job:localhost/" in beside.device + held.device
    return found == [4.0, 2.0, 3.0, 4.0, 12.0, 8.0] and is_connected


@contextlib.contextmanager
def cluster_of(kind: str, folder: pathlib.Path) -> Iterator[tf_placer.Cluster]:
    local = tf_placer.Cluster.local(2)
    if kind == "local":
        yield local
        return
    with LocalWorkers(local) as servers:
        yield cluster_file(folder, *servers.addresses)


def checks(kind: str) -> list[Callable[[], bool]]:
    return [
        *[a_small_budget_is_a_short_wait] * (kind == "local"),  # ends all workers, and connects to none
        what_is_older_than_the_connection_lives_on,
        what_is_faster_as_it_was_is_kept,
        the_first_calls_have_the_last_word,
        a_verdict_that_is_an_error_runs_no_step_again,
        a_variable_that_a_dataset_reads_stays_here,
        inside_another_function_there_is_no_trial,
        eager_ops_and_placed_calls_keep_their_order,
        the_plan_runs_on_the_workers,
        *[only_this_machine_reaches_this_process] * (kind == "local"),
    ]


def main() -> None:
    outcome.BUSY = math.inf  # type: ignore[misc] - or what is kept on a busy machine is measured again
    kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    with cluster_of(kind, folder) as cluster:
        SETTINGS.update(cluster=cluster, cache_dir=folder)
        report(checks(kind))


if __name__ == "__main__":
    main()
