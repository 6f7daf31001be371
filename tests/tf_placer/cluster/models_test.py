"""Every number that describes hardware says where it comes from."""

import collections
import dataclasses
import pathlib
import re
import tomllib

import pytest

from tf_placer.cluster import device as preset
from tf_placer.cluster.device import preset_names, preset_path

MODELS = pathlib.Path(preset.__file__).parent / "models.toml"

_TABLE = re.compile(r"\[+(?P<table>[\w.]+)\]+\s*(?:#(?P<comment>.*))?")
_NUMBER = re.compile(r"(?P<key>\w+)\s*=\s*(?P<value>[-+.\d][-+.\w]*)\s*(?:#(?P<comment>.*))?")

# One comment for many tables, by key and value; each stands in a comment line of its own.
SHARED_SOURCES = {
    (
        "streams",
        "1",
    ): "#   streams             1 for a GPU: TensorFlow runs all ops of a GPU on one compute stream",
    ("streams", "2"): "# Host CPUs run two ops at once, each on half of the cores: estimate of how far",
}
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
def test_every_number_has_a_source(path):
    text = path.read_text(encoding="utf-8")
    bare = [f"{path.name}:{n.line} [{n.table}] {n.key} = {n.value}" for n in numbers_of(text) if not n.source]
    assert bare == [], "say in a comment where these numbers come from:\n" + "\n".join(bare)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_no_number_is_overlooked(path):
    """The lines that the test above reads against what a TOML parser finds."""
    text = path.read_text(encoding="utf-8")

    def count(value):
        if isinstance(value, dict):
            return sum(map(count, value.values()))
        if isinstance(value, list):
            return sum(map(count, value))
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
        ("# Host CPUs run two ops at once, each on half of the cores: estimate of how far\nstreams = 2", []),
        (
            "# Host CPUs run two ops at once, each on half of the cores: estimate of how far\nstreams = 3",
            ["streams"],
        ),
        ('[device.x]\ntype = "GPU"', []),
    ],
)
def test_a_number_without_a_source_is_seen(text, bare):
    assert [number.key for number in numbers_of(text) if not number.source] == bare


def test_memory_is_what_its_comment_computes():
    """The header's rule, MiB that nvidia-smi reports less 5 %; the comment of each GPU gives the MiB."""
    computed = 0
    for number in numbers_of(MODELS.read_text(encoding="utf-8")):
        if match := re.match(r"([\d,]+) MiB x 0\.95", number.source):
            mebibytes = int(match[1].replace(",", ""))
            assert int(number.value) == mebibytes * 2**20 * 95 // 100, number
            computed += 1
    assert computed == 16


def test_arithmetic_in_comments_gives_the_number():
    """``18 cores x 2.3 GHz x 32``: cores, cycles, fp32 operations a cycle."""
    computed = 0
    for number in numbers_of(MODELS.read_text(encoding="utf-8")):
        if match := re.match(r"(?:(\d+) x )?(\d+) cores x ([\d.]+) GHz x (\d+)", number.source):
            sockets, cores, clock, operations = (float(text or 1) for text in match.groups())
            assert float(number.value) == pytest.approx(sockets * cores * clock * 1e9 * operations, rel=3e-3)
            computed += 1
    assert computed == 6  # every CPU that is a real one


def test_the_generic_gpu_is_a_p100_as_its_comment_says():
    devices = tomllib.loads(MODELS.read_text(encoding="utf-8"))["device"]
    assert devices["generic_gpu"] == devices["p100"]


def test_gpus_run_one_op_at_a_time_and_cpus_two():
    devices = tomllib.loads(MODELS.read_text(encoding="utf-8"))["device"]
    assert {(device["type"], device["streams"]) for device in devices.values()} == {("GPU", 1), ("CPU", 2)}
