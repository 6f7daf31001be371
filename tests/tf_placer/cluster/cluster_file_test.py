"""Cluster files: what may be left out, and one clear line for every mistake."""

import pytest

from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster

_GOOD = """
[[device]]
name = "GPU:0"
type = "GPU"
model = "k40"
memory_bytes = 1_000
streams = 1

[[device]]
name = "CPU:0"
type = "CPU"
memory_bytes = 2_000
streams = 3

[[link]]
source = "GPU:0"
target = "CPU:0"
latency_ns = 5
bytes_per_s = 1e9
channel = "bus"
duplex = true
"""


def _read(tmp_path, text):
    path = tmp_path / "box.toml"
    path.write_text(text)
    return Cluster.from_file(path)


def test_values_in_the_file_replace_the_model(tmp_path):
    cluster = _read(tmp_path, _GOOD)
    gpu, cpu = cluster.devices
    assert (cluster.name, gpu.model, gpu.memory_bytes, cpu.streams) == ("box", "k40", 1000, 3)
    assert gpu.peak_flops == 5.04e12  # models.toml, K40
    assert cluster.link_latency_ns().tolist() == [[0, 5], [5, 0]]
    assert cluster.channel_of_link().tolist() == [[-1, 0], [0, -1]]


def test_a_cpu_runs_the_newest_op_first_where_tensorflow_answers_or_the_file_says_so(tmp_path):
    assert not _read(tmp_path, _GOOD).newest_first().any()
    said = _GOOD.replace("streams = 3", "streams = 3\nnewest_first = true")
    assert _read(tmp_path, said).newest_first().tolist() == [False, True]
    live = said.replace("newest_first = true", 'address = "h:1"').replace(
        "streams = 1", 'streams = 1\naddress = "h:1"'
    )
    assert _read(tmp_path, live).newest_first().tolist() == [False, True]
    (tmp_path / "again.toml").write_text(_read(tmp_path, said).to_toml())
    assert Cluster.from_file(tmp_path / "again.toml").newest_first().tolist() == [False, True]


def test_lists_stand_for_all_pairs_and_give_each_its_channel(tmp_path):
    cluster = _read(
        tmp_path,
        """
        [[device]]
        name = ["GPU:0", "GPU:1", "GPU:2"]
        model = "v100"
        [[link]]
        source = ["GPU:0", "GPU:1", "GPU:2"]
        target = ["GPU:0", "GPU:1", "GPU:2"]
        type = "pcie3_x16"
        channel = "{source} out"
        """,
    )
    assert cluster.channel_of_link().tolist() == [[-1, 0, 0], [1, -1, 1], [2, 2, -1]]


def test_full_device_strings_of_other_tasks_are_kept(tmp_path):
    text = _GOOD.replace('"CPU:0"', '"/job:worker/replica:0/task:1/device:CPU:0"')
    assert _read(tmp_path, text).devices[1].name == "/job:worker/replica:0/task:1/device:CPU:0"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("duplex = true", "", r"no link .*CPU:0 -> .*GPU:0; add a \[\[link\]\]"),
        ("latency_ns = 5", "latency_ns = -5", r"link\[0\]\.latency_ns is -5; give a whole number from 0 to"),
        ("bytes_per_s = 1e9", "bytes_per_s = 0", r"link\[0\]\.bytes_per_s is 0; give a number from 1e-18"),
        ("bytes_per_s = 1e9", "bytes_per_s = nan", "bytes_per_s is nan"),
        ("memory_bytes = 1_000", "memory_bytes = -1", r"device\[0\]\.memory_bytes is -1; give .* from 1"),
        ("streams = 3", "streams = 0", r"device\[1\]\.streams is 0; give .* from 1"),
        ("streams = 3", "streams = 70_000", "streams is 70000; give .* to 65536"),
        ("latency_ns = 5", f"latency_ns = {10**30}", r"latency_ns is 10* *.* to 1e\+18"),
        ("latency_ns = 5", f"latency_ns = 0x{'f' * 9000}", "digits.*; give a smaller number"),
        ("latency_ns = 5", f"latency_ns = {'9' * 5000}", "not valid TOML: .*4300 digits"),
        ("bytes_per_s = 1e9", f"bytes_per_s = {10**400}", r"bytes_per_s is .*; give a number .* to 1e\+18"),
        ("bytes_per_s = 1e9", "bytes_per_s = 1e-300", "bytes_per_s is 1e-300; give a number from 1e-18"),
        ("streams = 3", f"streams = {'[' * 9999}{']' * 9999}", "not valid TOML: it is nested too deep"),
        ('name = "CPU:0"', 'name = "CPU:\u0660"', "not a TensorFlow device name"),
        ("streams = 3", 'streams = "3"', "streams is '3'; give a whole number"),
        ("streams = 3", "streams = true", "streams is True; give a whole number"),
        ("streams = 3", "stream = 3", r"unknown key device\[1\]\.stream; did you mean 'streams'"),
        ("latency_ns = 5", "latency = 5", "latency; did you mean 'latency_ns'"),
        ("duplex = true", "duplex = 1", "duplex is 1; give True or False"),
        ('model = "k40"', 'model = "k41"', "unknown device model 'k41'; did you mean 'k40'"),
        ('model = "k40"', 'model = "haswell"', "is no GPU"),
        ("latency_ns = 5", 'type = "pcie3_x17"', "unknown link type 'pcie3_x17'; did you mean 'pcie3_x16'"),
        ('target = "CPU:0"', 'target = "CPU:1"', r"no \[\[device\]\] is named 'CPU:1'"),
        ('target = "CPU:0"', 'target = "GPU:0"', "to itself"),
        ('name = "CPU:0"\ntype = "CPU"', 'name = "GPU:0"\ntype = "GPU"', "listed twice"),
        ('name = "CPU:0"', 'name = "the cpu"', "not a TensorFlow device name"),
        ('type = "CPU"', 'type = "GPU"', "make them agree"),
        ('type = "CPU"', 'type = "TPU"', "type is 'TPU'; give one of CPU, GPU"),
        ('name = "GPU:0"', "name = []", "give a text or a list"),
        ("[[device]]", "[[devices]]", "unknown key devices; did you mean 'device'"),
        ("streams = 3", "streams = ", "not valid TOML: .*line"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_item_and_remedy(tmp_path, old, new, message):
    assert old in _GOOD, "the case must change the file"
    with pytest.raises(InputError, match=message) as caught:
        _read(tmp_path, _GOOD.replace(old, new))
    assert "box.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.toml: cannot read .*No such file"):
        Cluster.from_file(tmp_path / "nowhere.toml")


def test_links_listed_twice_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"GPU:0 -> .*CPU:0 is listed twice"):
        _read(tmp_path, _GOOD + _GOOD[_GOOD.index("[[link]]") :])
