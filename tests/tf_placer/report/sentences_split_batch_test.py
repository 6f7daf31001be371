"""What is said is what was found: less, more or no time, too large, or impossible."""

import dataclasses

from tf_placer.data_parallel.data_parallel import DataParallel
from tf_placer.report.sentences import split_batch_sentence
from tf_placer.report.text import split_batch_row

GPUS = ("/job:localhost/replica:0/task:0/device:GPU:0", "/job:localhost/replica:0/task:0/device:GPU:1")
CPUS = tuple(name.replace("GPU", "CPU") for name in GPUS)
FOUND = DataParallel(GPUS, 64, 32, step_s=0.3, overlapped_s=0.25)


def test_less_time() -> None:
    assert split_batch_sentence(FOUND, 0.4) == (
        "Split the batch instead: tf.distribute.MirroredStrategy over 2 GPUs would take 300 ms in the simulator, "
        "25.0% less than this plan."
    )


def test_more_time() -> None:
    said = split_batch_sentence(FOUND, 0.24)
    assert said.startswith("Splitting the batch gains no more: ") and said.endswith(
        "25.0% more than this plan."
    )


def test_overlapping_would_turn_it() -> None:
    said = split_batch_sentence(FOUND, 0.28)
    assert said.endswith(" With gradients sent in small packs beside the backward pass, 250 ms.")


def test_no_difference() -> None:
    assert "gains nothing" in split_batch_sentence(FOUND, 0.3)


def test_the_runtime_has_the_last_word() -> None:
    measured = dataclasses.replace(
        FOUND, measured_s=0.5, plan_measured_s=0.4, is_clear=True, gradient_bytes=4
    )
    assert split_batch_sentence(measured, 0.4) == (
        "Splitting the batch gains no more: a copy of the step on each of 2 GPUs, adding up gradients as "
        "tf.distribute.MirroredStrategy does, took 500 ms on the runtime, in turn with it, 25.0% more than this "
        "plan."
    )
    assert "gains nothing" in split_batch_sentence(dataclasses.replace(measured, is_clear=False), 0.4)
    faster = dataclasses.replace(measured, measured_s=0.3)
    assert split_batch_sentence(faster, 0.2).startswith("Split the batch instead: ")
    inference = dataclasses.replace(measured, gradient_bytes=0)
    assert "on each of 2 GPUs took 500 ms" in split_batch_sentence(inference, 0.4)


def test_why_it_was_not_measured() -> None:
    said = split_batch_sentence(dataclasses.replace(FOUND, why_not="not measured: worker 1 died"), 0.4)
    assert said.endswith("25.0% less than this plan. It was not measured: worker 1 died.")


def test_it_does_not_fit() -> None:
    said = split_batch_sentence(dataclasses.replace(FOUND, over_bytes=3 << 29), 0.4)
    assert "does not fit" in said and "1.50 GiB more than it has" in said


def test_why_not() -> None:
    found = DataParallel(GPUS, 7, why_not="7 examples do not divide by 2 devices")
    said = split_batch_sentence(found, 0.4)
    assert said == "The batch cannot be split over 2 GPUs instead: 7 examples do not divide by 2 devices."


def test_devices_have_their_name() -> None:
    for names, word in ((("/job:worker/device:CPU:0",) * 2, "CPU workers"), (CPUS, "CPUs"), (GPUS, "GPUs")):
        found = dataclasses.replace(FOUND, devices=names)
        assert f"over 2 {word} would" in split_batch_sentence(found, 0.4)


def test_nothing_to_say_of_one_device() -> None:
    assert split_batch_sentence(DataParallel(GPUS[:1], why_not="there is one device"), 0.4) == ""


def test_no_plan_was_timed() -> None:
    assert "300 ms" in split_batch_sentence(FOUND, None)


def test_name() -> None:
    assert [row.name for row in split_batch_row(FOUND)] == ["data parallel x2"]
