"""Cluster files, hardware models and this machine: sources of numbers, and one clear line for every mistake."""

import collections
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

from tests.refused import refused
from tf_placer.cluster import device as preset
from tf_placer.cluster import probe
from tf_placer.cluster.cluster import PROBED_SHARES, Cluster, local_devices
from tf_placer.cluster.device import Device, preset_names, preset_path
from tf_placer.costs.formulas import WorkClass, efficiencies

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
    live = said.replace("newest_first = true", 'address = "h:1"')
    live = live.replace("streams = 1", 'streams = 1\naddress = "h:1"')
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
    with refused(message) as caught:
        _read(tmp_path, _GOOD.replace(old, new))
    assert "box.toml" in str(caught.value)


def test_links_listed_twice_are_refused(tmp_path):
    with refused(r"GPU:0 -> .*CPU:0 is listed twice"):
        _read(tmp_path, _GOOD + _GOOD[_GOOD.index("[[link]]") :])


MODELS = pathlib.Path(preset.__file__).parent / "models.toml"

_TABLE = re.compile(r"\[+(?P<table>[\w.]+)\]+\s*(?:#(?P<comment>.*))?")
_NUMBER = re.compile(r"(?P<key>\w+)\s*=\s*(?P<value>[-+.\d][-+.\w]*)\s*(?:#(?P<comment>.*))?")

# One comment for many tables, by key and value; each stands in a comment line of its own.
OF_GPUS = "#   streams             1 for a GPU: TensorFlow runs all ops of a GPU on one compute stream"
OF_CPUS = "# Host CPUs run two ops at once, each on half of the cores: estimate of how far"
SHARED_SOURCES = {("streams", "1"): OF_GPUS, ("streams", "2"): OF_CPUS}
# What the comment on a table's own line says where it is the source of all numbers below.
WHOLE_TABLE = re.compile(r"'s numbers\b|\bestimate\b")


@dataclasses.dataclass(frozen=True)
class Number:
    """One ``key = number`` line; ``source`` is the comment that explains it, "" where there is none."""

    line: int
    table: str
    key: str
    value: str
    source: str


def numbers_of(text: str) -> list[Number]:
    """Every number of a TOML file with its source: on the line, on the table's line, or shared."""
    numbers = []
    table, table_source = "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TABLE.fullmatch(line):
            table = match["table"]
            table_source = match["comment"] if WHOLE_TABLE.search(match["comment"] or "") else ""
        elif match := _NUMBER.fullmatch(line):
            shared = SHARED_SOURCES.get((match["key"], match["value"]), "")
            shared = shared if shared and re.search("^" + re.escape(shared), text, re.MULTILINE) else ""
            source = (match["comment"] or "").strip() or table_source or shared
            numbers.append(Number(number, table, match["key"], match["value"], source))
    return numbers


def files():
    return [MODELS, *(preset_path(name) for name in preset_names())]


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_every_number_that_a_parser_finds_has_a_source(path):
    text = path.read_text(encoding="utf-8")
    bare = [f"{path.name}:{n.line} [{n.table}] {n.key} = {n.value}" for n in numbers_of(text) if not n.source]
    assert bare == [], "say in a comment where these numbers come from:\n" + "\n".join(bare)

    def count(value):
        if isinstance(value, dict | list):
            return sum(map(count, value.values() if isinstance(value, dict) else value))
        return int(isinstance(value, int | float) and not isinstance(value, bool))

    assert len(numbers_of(text)) == count(tomllib.loads(text))
    if path == MODELS:
        assert collections.Counter(n.key for n in numbers_of(text))["peak_flops"] == 24


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_begins_with_the_machine_it_describes(name):
    first, *_ = preset_path(name).read_text(encoding="utf-8").splitlines()
    assert re.match(r"# \w+", first), f"{name}.toml: say on top which published machine this is"


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("[device.x]\nlaunch_ns = 5", ["launch_ns"]),
        ("[device.x]\nlaunch_ns = 5  # estimate", []),
        ("[device.x]  # a board of two\nlaunch_ns = 5_000", ["launch_ns"]),
        ("[device.x]  # estimate, 8 cores\nlaunch_ns = 5e3", []),
        ("[device.x]  # estimate\na = 1\n[device.y]\nb = 2.5", ["b"]),
        ("[[link]]\nlatency_ns = 5  #", ["latency_ns"]),
        # The shared comment must be in the file.
        ("[device.x]\nstreams = 1", ["streams"]),
        (f"{OF_CPUS}\nstreams = 2", []),
        (f"{OF_CPUS}\nstreams = 3", ["streams"]),
        ('[device.x]\ntype = "GPU"', []),
    ],
)
def test_a_number_without_a_source_is_seen(text, bare):
    assert [number.key for number in numbers_of(text) if not number.source] == bare


def test_numbers_are_what_their_comments_compute():
    computed = collections.Counter()
    for number in numbers_of(MODELS.read_text(encoding="utf-8")):
        # The header's rule: MiB that nvidia-smi reports less 5 %.
        if match := re.match(r"([\d,]+) MiB x 0\.95", number.source):
            assert int(number.value) == int(match[1].replace(",", "")) * 2**20 * 95 // 100, number
            computed["memory"] += 1
        # ``18 cores x 2.3 GHz x 32``: cores, cycles, fp32 operations a cycle; of every CPU that is a real one.
        elif match := re.match(r"(?:(\d+) x )?(\d+) cores x ([\d.]+) GHz x (\d+)", number.source):
            sockets, cores, clock, operations = (float(text or 1) for text in match.groups())
            assert float(number.value) == pytest.approx(sockets * cores * clock * 1e9 * operations, rel=3e-3)
            computed["cores"] += 1
    assert computed == {"memory": 16, "cores": 6}


def test_the_generic_gpu_is_a_p100_and_gpus_run_one_op_at_a_time_and_cpus_two():
    devices = tomllib.loads(MODELS.read_text(encoding="utf-8"))["device"]
    assert devices["generic_gpu"] == devices["p100"]
    assert {(device["type"], device["streams"]) for device in devices.values()} == {("GPU", 1), ("CPU", 2)}


def test_a_kept_cluster_is_the_same_for_a_later_process(monkeypatch, tmp_path):
    file = tmp_path / "deep" / "cluster.toml"
    first = Cluster.local(kept_in=file)
    # As in another process: other probes, other free memory.
    monkeypatch.setattr("tf_placer.cluster.cluster._available_memory_bytes", lambda: 10**9)
    assert Cluster.local().fingerprint() != first.fingerprint()
    second = Cluster.local(kept_in=file)
    assert second.fingerprint() == first.fingerprint()
    assert (second.name, second.kind, second.devices) == (first.name, first.kind, first.devices)
    assert Cluster.from_file(file).kind == "described", "only who asks for this machine gets its workers"
    other = len(first.devices) + 1
    with refused(f"cluster.toml holds {other - 1} devices, not cores={other}"):
        Cluster.local(cores=other, kept_in=file)


def test_one_device_per_core_and_a_link_each_way():
    cores = len(os.sched_getaffinity(0))
    cluster = Cluster.local(cores)
    assert cluster.kind == "local"
    names = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(cores)]
    assert [device.name for device in cluster.devices] == names
    pairs = {(link.source, link.target) for link in cluster.links}
    assert pairs == {(a, b) for a in range(cores) for b in range(cores) if a != b}
    assert len({link.channel for link in cluster.links}) == len(cluster.links)
    # A core of any machine of this century does 0.1 GFLOP/s and none does 10 TFLOP/s.
    assert 1e8 < cluster.devices[0].peak_flops < 1e13
    assert 1e8 < cluster.devices[0].memory_bytes_per_s < 1e13
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < sum(device.memory_bytes for device in cluster.devices) < total_bytes


@pytest.mark.parametrize("cores", [0, 10_000])
def test_a_number_of_cores_that_is_not_there_is_refused(cores):
    with refused(f"cores={cores}"):
        local_devices(cores)


def test_gpus_come_before_the_host_cpu(monkeypatch):
    core = {"peak_flops": 1e11, "memory_bytes_per_s": 1e10}
    gpu = {"peak_flops": 1.234e13, "memory_bytes_per_s": 9.87e11, "memory_bytes": 2**34, "model": "Tesla T9"}
    probed = {"devices": [gpu, gpu], "core": core}
    monkeypatch.setattr("tf_placer.cluster.cluster._run_probe", lambda kind, *_: probed[kind])
    monkeypatch.setattr("glob.glob", lambda pattern: ["/dev/nvidia0", "/dev/nvidia1"])
    cluster = Cluster.local()
    names = [f"/job:worker/replica:0/task:0/device:{name}" for name in ("GPU:0", "GPU:1", "CPU:0")]
    assert [device.name for device in cluster.devices] == names
    assert cluster.devices[0].peak_flops == 1.5e13  # 1.234e13 / 0.83, two digits
    assert cluster.devices[0].model == "local_tesla_t9"
    assert cluster.devices[2].streams == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("file", ["/proc/cluster.toml", "{tmp}/file/cluster.toml"])
def test_a_cluster_that_cannot_be_kept_is_told_before_the_machine_is_probed(monkeypatch, tmp_path, file):
    (tmp_path / "file").touch()
    monkeypatch.setattr("tf_placer.cluster.cluster.local_devices", lambda cores: pytest.fail("probed"))
    with refused(r"^kept_in=.*cluster\.toml: .*; give another folder"):
        Cluster.local(kept_in=file.format(tmp=tmp_path))


@pytest.mark.parametrize("device_type", ["CPU", "GPU"])
def test_what_a_probe_reaches_is_what_the_cost_model_charges(device_type):
    device = Device("GPU:0", device_type, "local", 1, 1, 1e12, 1e11, 0)
    found = efficiencies(device.type, device.model)
    charged = (found.compute[WorkClass.PRODUCT_WIDE], found.memory[WorkClass.STREAMING])
    assert charged == PROBED_SHARES[device_type]


@pytest.mark.medium
def test_the_probe_measures_any_device_type():
    # There may be no GPU here; the host CPU stands for one.
    command = [sys.executable, "-P", probe.__file__, "devices", "CPU", "256"]
    (report,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert report["memory_bytes"] > 0
    assert 1e8 < report["peak_flops"] < 1e14
    assert 1e7 < report["memory_bytes_per_s"] < 1e14
