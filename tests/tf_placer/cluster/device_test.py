"""Short names of devices."""

from tf_placer.cluster.device import device_labels


def test_labels_are_as_long_as_it_takes():
    gpus = [f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2)]
    assert device_labels(gpus) == ("GPU:0", "GPU:1")
    workers = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2)]
    assert device_labels(workers) == ("task 0 CPU:0", "task 1 CPU:0")
    assert device_labels(["first", "second"]) == ("first", "second")
    streams = [f"{gpus[0]}/stream:{name}" for name in ("all", "1")]
    assert device_labels(streams) == ("GPU:0/stream:all", "GPU:0/stream:1")
    assert device_labels(["GPU:0", "second"]) == ("GPU:0", "second")
