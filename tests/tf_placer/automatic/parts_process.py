"""Auto-places functions with their batch in parts, and prints what differs, as JSON.

A process of its own: TensorFlow fixes its logical devices when its first op runs, and a process stays connected to its
workers. Its arguments: "logical" or "local", a folder for plans, and "again" where an earlier process has filled that.
"""

import concurrent.futures
import json
import math
import pathlib
import sys
import tempfile
import unittest.mock
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_placer
from colocation.tensorflow_internals import call_flat
from tests.logical_devices import report
from tests.tf_placer.automatic.told import told_by
from tests.tf_placer.rewrite.placing import are_close, refusal
from tf_placer.automatic.signature import TIMED_STEPS, WARMUP_STEPS
from tf_placer.planning import find, outcome

SETTINGS: dict = {"method": "random", "budget_s": 1.0, "keep_unplaced": False}


class Step(tf.Module):
    """A training step with momentum; its batch may be any."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.random.stateless_normal([6, width], [1, 2]))
        self.last = tf.Variable(tf.random.stateless_normal([width, 3], [3, 4]))
        self.slots = [tf.Variable(tf.zeros_like(one)) for one in (self.weight, self.last)]

    @tf.function(input_signature=[tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int32)])
    def __call__(self, x, y):
        with tf.GradientTape() as tape:
            logits = tf.nn.relu(x @ self.weight) @ self.last
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        weights = [self.weight, self.last]
        for slot, weight, gradient in zip(self.slots, weights, tape.gradient(loss, weights), strict=True):
            slot.assign(0.9 * slot + gradient)
            weight.assign_sub(0.1 * slot)
        return {"loss": loss, "logits": logits}

    @property
    def state(self) -> list[tf.Tensor]:
        return [tf.identity(one) for one in (self.weight, self.last, *self.slots)]


def examples(count: int, seed: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    numbers = np.random.default_rng(seed)
    return (
        tf.constant(numbers.normal(size=[count, 6]), tf.float32),
        tf.constant(numbers.integers(3, size=[count]), tf.int32),
    )


def auto_place(fn: Any, **settings: Any) -> Any:
    return tf_placer.auto_place(fn, **(SETTINGS | settings))


def is_split(placed: Any) -> bool:
    return placed.placement.problem.splitting is not None


def parts_compute_the_same_over_several_steps() -> bool:
    """Also of a batch that the parts do not divide."""
    found = []
    for parts, count in ((2, 8), (3, 8)):
        one, other = Step(), Step()
        placed = auto_place(other.__call__, parts=parts)
        for seed in range(4):
            found.append(are_close(one(*examples(count, seed)), placed(*examples(count, seed))))
        found += [are_close(one.state, other.state), is_split(placed)]
        found.append(f"The plan is of a batch of {count} in {parts} parts" in placed.report())
    return all(found)


def auto_takes_the_faster_form_and_keeps_it() -> bool:
    """Another wrapper, as another process, needs no search; asked otherwise it does."""
    settings = {"parts": "auto", "method": "local_search", "budget_s": 4.0}
    given = tf.random.stateless_normal([512, 256], [1, 2])

    def made() -> Any:
        weights = [tf.Variable(tf.random.stateless_normal([256, 256], [i, i])) for i in range(4)]

        @tf.function
        def forward(x):
            for weight in weights:
                x = tf.tanh(x @ weight)
            return tf.reduce_sum(x, axis=1)

        return forward

    first, again, whole, expected = made(), made(), made(), made()(given)
    placed = auto_place(first, **settings)
    kept = auto_place(again, **settings)
    otherwise = auto_place(whole, **{**settings, "parts": 1, "budget_s": 0.5})
    results = [placed(given), kept(given), otherwise(given)]
    is_live = SETTINGS["cluster"].kind == "local"  # there the race decides
    same_form = is_split(placed) == is_split(kept)
    said = "By a plan" if is_split(placed) else "With the batch in parts the best plan found takes"
    return (
        all(are_close(expected, one) for one in results)
        and (is_live or is_split(placed))
        and (is_split(placed) or said in placed.report())
        and same_form
        and "by a plan that was kept" in kept.report()
        and "by a plan that was kept" not in otherwise.report()
        and not is_split(otherwise)
        and kept.placement.device_of_unit.tolist() == placed.placement.device_of_unit.tolist()
    )


def another_batch_runs_as_it_is_with_one_warning() -> bool:
    one, other = Step(), Step()
    placed = auto_place(other.__call__, parts=2)
    found = [are_close(one(*examples(8)), placed(*examples(8)))]
    (calls, told) = told_by(lambda: [placed(*examples(6, seed)) for seed in range(2)])
    found += [are_close(one(*examples(6, seed)), calls[seed]) for seed in range(2)]
    found.append(are_close(one(*examples(8, 5)), placed(*examples(8, 5))))
    found.append(are_close(one.state, other.state))
    return all(found) and len(told) == 1 and "its plan is of a batch of 8 in 2 parts" in told[0]


def what_cannot_be_split_runs_as_it_is_or_is_an_error() -> bool:
    scalar = lambda: tf.function(lambda x: tf.sin(x) * 2.0)  # noqa: E731
    weights = tf.Variable(np.ones([6, 4], np.float32))
    features = lambda: tf.function(lambda x: tf.tanh(tf.tensordot(tf.nn.relu(x), weights, 1)))  # noqa: E731
    steps = [Step() for _ in range(3)]  # a bound function keeps no object
    over = (step.__call__ for step in steps).__next__
    cases = [
        (scalar, (tf.constant(1.0),), 2, "has no input with several examples"),
        (features, (tf.ones([6]),), 2, "there is no batch to split"),
        (over, examples(4), 5, "parts is 5, but the batch has 4 examples"),
    ]
    found = []
    for make, given, parts, message in cases:
        expected = make()(*given)
        result, told = told_by(
            lambda make=make, given=given, parts=parts: auto_place(make(), parts=parts)(*given)
        )
        strict = auto_place(make(), parts=parts, strict=True)
        refused = refusal(lambda strict=strict, given=given: strict(*given))
        found.append(are_close(expected, result) and len(told) == 1 and message in told[0])
        found.append(message in refused and "\n" not in refused)
    return all(found)


def a_batch_that_is_not_known_is_looked_at() -> bool:
    """Inside another function each call chooses: by the plan of ``batch_size``, or as it is."""
    one, other, third, fourth = (Step() for _ in range(4))
    placed, by_the_plan = auto_place(other.__call__, parts=2, batch_size=8), tf.Variable(False)

    def noted(concrete, inputs):
        by_the_plan.assign(any(op.name.startswith("part_0/") for op in concrete.graph.get_operations()))
        return call_flat(concrete, inputs)

    @tf.function(input_signature=[tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int32)])
    def outer(x, y):
        return placed(x, y)

    counts, told, chosen = [8, 8, 5, 8], [], []
    with unittest.mock.patch("colocation.tensorflow_internals.call_flat", noted):
        for seed, count in enumerate(counts):
            result, more = told_by(lambda seed=seed, count=count: outer(*examples(count, seed)))
            told += more if are_close(one(*examples(count, seed)), result) else ["different"]
            chosen.append(bool(by_the_plan))
    known = auto_place(third.__call__, parts=2)
    inside = tf.function(lambda x, y: known(x, y)).get_concrete_function(*examples(8))
    return (
        told == []
        and are_close(one.state, other.state)
        and is_split(placed)
        and "The plan is of a batch of 8 in 2 parts" in placed.report()
        and chosen == [True, True, False, True]
        and are_close(fourth(*examples(8)), inside(*examples(8)))
        and is_split(known)
        and all(op.type != "If" for op in inside.graph.get_operations())
    )


def grappler_takes_no_size_of_one_branch_for_another() -> bool:
    """It infers the sizes of both at once, and computes what they seem to say before the step runs."""
    scaled = tf.function(lambda x: tf.tanh(x) / tf.cast(tf.shape(x)[0], tf.float32))
    placed = auto_place(scaled, parts=2, batch_size=8)
    outer = tf.function(lambda x: placed(x), input_signature=[tf.TensorSpec([None, 6])])
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    try:
        given = [examples(count)[0] for count in (8, 5, 8)]
        found = [are_close(scaled(x), outer(x)) for x in given]
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    return all(found) and is_split(placed)


def sizes_that_never_fit_run_as_they_are() -> bool:
    """A size that is known, and not the plan's, needs no look at run time."""
    one, other = Step(), Step()
    placed = auto_place(other.__call__, parts=2)
    found = [are_close(one(*examples(8)), placed(*examples(8)))]
    outer = tf.function(lambda x, y: placed(x, y))
    result, told = told_by(lambda: outer(*examples(6)))
    found.append(are_close(one(*examples(6)), result) and are_close(one.state, other.state))
    return all(found) and len(told) == 1 and "its plan is of a batch of 8 in 2 parts" in told[0]


def what_is_saved_before_a_call_is_whole() -> bool:
    """Nothing says its batch then."""
    step = Step()
    concrete, told = told_by(auto_place(step.__call__, parts=2).get_concrete_function)
    expected = Step()(*examples(5))
    return (
        len(told) == 1
        and "what is saved in parts is of a known batch" in told[0]
        and are_close(expected, concrete(*examples(5)))
    )


def a_saved_function_of_another_batch_is_an_error_that_says_so() -> bool:
    step, given = Step(), tf.random.stateless_normal([8, 6], [1, 2])

    @tf.function(input_signature=[tf.TensorSpec([None, 6], name="x")])
    def forward(x):
        return tf.nn.relu(x @ step.weight)

    placed = auto_place(forward, parts=2)
    placed(given)
    concrete = placed.get_concrete_function()
    found = [are_close(forward(given), concrete(given))]
    if SETTINGS["cluster"].kind == "logical":  # a checkpoint of workers' variables is another matter
        module = tf.Module()
        module.step = step
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder, signatures={"serving_default": concrete})
            signature = tf.saved_model.load(folder).signatures["serving_default"]
            found.append(are_close(forward(given), next(iter(signature(x=given).values()))))
            found.append(_says_the_batch(lambda: signature(x=given[:6])))
    return all(found) and _says_the_batch(lambda: concrete(given[:6]))


def _says_the_batch(run: Callable[[], object]) -> bool:
    try:
        run()
    except tf.errors.InvalidArgumentError as error:
        text = str(error)
        return "[6,6] is not compatible with expected shape [8,6]" in text and "parts_are_of_8" in text
    return False


def threads_share_a_plan() -> bool:
    weight = tf.Variable(tf.ones([6, 4]))
    forward = tf.function(lambda x: tf.tanh(x @ weight))
    placed = auto_place(forward, parts=2)
    batches = [examples(8, seed)[0] for seed in range(8)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(placed, batches))
    return (
        are_close(list(map(forward, batches)), results) and is_split(placed) and len(placed.placements) == 1
    )


def a_checkpoint_is_of_the_same_variables() -> bool:
    step = Step()
    placed = auto_place(step.__call__, parts=2)
    placed(*examples(8))
    before = step.state
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(step=step).write(f"{folder}/state")
        placed(*examples(8))
        tf.train.Checkpoint(step=step).read(path).assert_consumed()
    return are_close(before, step.state)


def pins_are_about_copies() -> bool:
    step = Step()
    device = SETTINGS["cluster"].devices[1].name
    placed = auto_place(step.__call__, parts=2, pins={"matmul.*": device})
    placed(*examples(8))
    names = placed.placement.device_names
    pinned = [names[f"part_{copy}/{op}"] for copy in range(2) for op in ("matmul", "matmul_1")]
    return pinned == [device] * 4 and len(set(names.values())) > 1


def variables_may_stay() -> bool:
    one, other = Step(), Step()
    where = [variable.device for variable in other.trainable_variables]
    placed = auto_place(other.__call__, parts=2, variables="stay")
    found = [are_close(one(*examples(8, seed)), placed(*examples(8, seed))) for seed in range(2)]
    stayed = [variable.device for variable in other.trainable_variables] == where
    return all(found) and stayed and are_close(one.state, other.state) and is_split(placed)


def a_keras_model_trains_the_same() -> bool:
    """Batch normalization has the statistics of the whole batch, and Adam its slots once.

    Keras leaves the batch of arrays open, and the last one is smaller: it runs as it is.
    """
    x = np.random.default_rng(0).normal(size=[44, 8]).astype(np.float32)
    y = x[:, :1] ** 2

    def trained(parts: int, *data: Any, **fit: Any) -> tuple[list[np.ndarray], str]:
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((8,)), *layers])
        model.compile(optimizer="adam", loss="mse", metrics=["mae"], jit_compile=False)
        if parts > 1:
            model.train_step = auto_place(model.train_step, parts=parts, batch_size=8)
        history = model.fit(*data, epochs=2, shuffle=False, verbose=0, **fit).history
        numbers = [np.array(values) for _, values in sorted(history.items())]
        return [*model.get_weights(), *numbers], model.train_step.report() if parts > 1 else ""

    whole_batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder=True)
    found = []
    for data, fit in (((whole_batches,), {}), ((x, y), {"batch_size": 8})):
        whole, (split, text) = trained(1, *data, **fit)[0], trained(2, *data, **fit)
        # Adam divides by the square root of small numbers, which makes the last bits larger.
        apart = max(float(np.abs(a - b).max()) for a, b in zip(whole, split, strict=True))
        found.append(apart < 1e-4 and text.count("a batch of 8 in 2 parts") == 1)
    return all(found)


def a_report_says_what_splitting_gives_whatever_was_asked() -> bool:
    """Of a new plan and of a kept one, of time or memory, called by itself or inside another function."""

    def inside(placed: Any) -> Any:
        specs = [tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int32)]
        return tf.function(lambda x, y: placed(x, y), input_signature=specs)

    said = (
        "Data parallel over 2 CPUs would take ",
        "With the batch in parts ",
        "The plan is of a batch of 8 in 2 ",
    )
    directly: list[dict] = [{}, {}, {"objective": "memory"}, {"parts": "auto"}]
    found = []
    for settings, around in [*((one, lambda placed: placed) for one in directly), ({}, inside)]:
        step = Step(24)  # a bound function keeps no object
        placed = auto_place(step.__call__, **settings, batch_size=8)
        around(placed)(*examples(8))
        found.append(sum(one in placed.report() for one in said) == 1)
    return all(found)


def plans_in_parts() -> list[tuple[Any, list[int], bool]]:
    """A placed step of each request for parts, its plan, and whether what it computed is right."""
    found = []
    for parts in (2, "auto"):
        one, other = Step(), Step()
        placed = auto_place(other.__call__, parts=parts)
        is_right = are_close(one(*examples(8)), placed(*examples(8))) and are_close(one.state, other.state)
        found.append((placed, placed.placement.device_of_unit.tolist(), is_right))
    return found


def plans_for_a_later_process_are_made() -> bool:
    found = plans_in_parts()
    pathlib.Path(SETTINGS["cache_dir"], "made_before").write_text(json.dumps([row for _, row, _ in found]))
    return all(is_right for _, _, is_right in found) and is_split(found[0][0])


def plans_of_an_earlier_process_need_no_search() -> bool:
    with unittest.mock.patch.object(find, "search", side_effect=AssertionError("it was searched")):
        found = plans_in_parts()
    note = pathlib.Path(SETTINGS["cache_dir"], "made_before").read_text()
    return (
        json.loads(note) == [row for _, row, _ in found]
        and all("by a plan that was kept" in placed.report() and is_right for placed, _, is_right in found)
        and is_split(found[0][0])
    )


def an_audit_has_a_tolerance() -> bool:
    step = Step()
    placed = auto_place(step.__call__, parts=2)
    placed(*examples(8))
    found = placed.audit(values=True)
    return (
        found.in_place > 0
        and found.values.apart is not None
        and found.values.exact.relative <= found.values.apart
        and "sums are in another order" in found.summary()
    )


def the_first_calls_decide() -> bool:
    """Each call runs once, whichever form it runs."""
    one, other = Step(), Step()
    calls = 2 * (WARMUP_STEPS + TIMED_STEPS) + 2
    pins = {"matmul.*": "task:1/device:CPU:0"}  # a plan that was not kept yet
    placed = auto_place(other.__call__, parts=2, keep_unplaced=True, pins=pins)
    with unittest.mock.patch("tf_placer.planning.outcome.clearly_slower", lambda *_: True):
        found = [are_close(one(*examples(8)), placed(*examples(8)))]
    on_trial = placed.report().startswith("__call__ is on trial, ")
    for seed in range(calls):
        expected, result = one(*examples(8, seed)), told_by(lambda seed=seed: placed(*examples(8, seed)))[0]
        found.append(are_close(expected["loss"], result["loss"]))
    return all(found) and on_trial and "call by call" in placed.report() and is_split(placed)


CHECKS = (
    parts_compute_the_same_over_several_steps, auto_takes_the_faster_form_and_keeps_it,
    another_batch_runs_as_it_is_with_one_warning, what_cannot_be_split_runs_as_it_is_or_is_an_error,
    a_batch_that_is_not_known_is_looked_at, grappler_takes_no_size_of_one_branch_for_another,
    sizes_that_never_fit_run_as_they_are, what_is_saved_before_a_call_is_whole,
    a_saved_function_of_another_batch_is_an_error_that_says_so, threads_share_a_plan,
    a_checkpoint_is_of_the_same_variables, pins_are_about_copies, variables_may_stay,
    a_keras_model_trains_the_same, a_report_says_what_splitting_gives_whatever_was_asked,
    plans_for_a_later_process_are_made,
)  # fmt: skip
ON_WORKERS = (
    parts_compute_the_same_over_several_steps, auto_takes_the_faster_form_and_keeps_it,
    another_batch_runs_as_it_is_with_one_warning, grappler_takes_no_size_of_one_branch_for_another,
    a_keras_model_trains_the_same, an_audit_has_a_tolerance, the_first_calls_decide,
    plans_for_a_later_process_are_made,
)  # fmt: skip
AGAIN = (plans_of_an_earlier_process_need_no_search,)


def main() -> None:
    outcome.BUSY = math.inf  # type: ignore[misc] - or what is kept on a busy machine is measured again
    kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    cluster = tf_placer.Cluster.local(2) if kind == "local" else tf_placer.Cluster.logical(2)
    SETTINGS.update(cluster=cluster, cache_dir=folder)
    report(AGAIN if sys.argv[3:] else ON_WORKERS if kind == "local" else CHECKS)


if __name__ == "__main__":
    main()
