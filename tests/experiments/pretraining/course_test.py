"""A course: families that can be left out, machines that a seed draws, names that are checked."""

import math

import pytest

from experiments.pretraining.course import COURSE, Machine, read_course, scaled, without
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster

SMALL = """
machines = 3
clusters = ["k40x2", "p100x4"]
link_scale = [0.5, 2.0]

[families.a]
two_towers = [{}, { depth = 2 }]

[families.b]
dense_small = [{ layers = 2 }]
"""


@pytest.fixture
def course(tmp_path):
    path = tmp_path / "course.toml"
    path.write_text(SMALL)
    return path


def test_programs_are_in_order_with_their_settings_and_machines(course):
    programs = read_course(seed=3, path=course)
    assert [program.name for program in programs] == [
        "two_towers",
        "two_towers depth=2",
        "dense_small layers=2",
    ]
    assert [program.family for program in programs] == ["a", "a", "b"]
    for program in programs:
        first, second, third = program.machines
        # Two clusters for three machines: both are there before one comes again.
        assert {first.cluster, second.cluster} == {"k40x2", "p100x4"} and third.cluster == first.cluster
        assert all(0.5 <= machine.link_scale <= 2.0 for machine in program.machines)


def test_machines_are_those_of_the_seed_and_of_no_other_program(course):
    one, again, other = (read_course(seed, course) for seed in (3, 3, 4))
    assert one == again != other
    course.write_text(SMALL.replace("two_towers = [{}", "branches_small = [{}]\ntwo_towers = [{}"))
    assert read_course(3, course)[1:] == one


def test_families_are_left_out_by_name(course):
    programs = read_course(0, course)
    assert [program.family for program in without(programs, ["a"])] == ["b"]
    assert without(programs, []) == programs
    with pytest.raises(InputError, match="no family 'c'"):
        without(programs, ["c"])
    with pytest.raises(InputError, match="leave some in"):
        without(programs, ["a", "b"])


def test_links_are_as_much_faster_as_is_said():
    plain, fast = Cluster.preset("k40x2"), Machine("k40x2", 4.0).build()
    assert fast.devices == plain.devices and fast.name != plain.name
    for before, after in zip(plain.links, fast.links, strict=True):
        assert after.bytes_per_s == 4 * before.bytes_per_s
        assert after.latency_ns == round(before.latency_ns / 4)
    assert scaled(plain, 1.0).links == plain.links


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("two_towers", "three_towers", "no workload is called 'three_towers'"),
        ('"p100x4"', '"p100x3"', "p100x3"),
        ("machines = 3", "machines = 0", "machines is 0"),
        ("[0.5, 2.0]", "[2.0, 0.5]", "link_scale"),
        ("[0.5, 2.0]", "[0.0, 0.5]", "link_scale"),
        ("[{}, { depth = 2 }]", "[2]", r"two_towers\]\[0\]"),
        ("machines = 3", "machine = 3", "machines is missing"),
        ("machines = 3", "", "machines is missing"),
    ],
)
def test_a_wrong_file_is_told_with_its_name(course, before, after, told):
    course.write_text(SMALL.replace(before, after))
    with pytest.raises(InputError, match=told) as raised:
        read_course(0, course)
    assert str(raised.value).startswith(str(course))


def test_the_course_that_ships_has_200_problems_of_2_to_8_devices_and_links_of_a_quarter_to_four():
    programs = read_course(0, COURSE)
    machines = [machine for program in programs for machine in program.machines]
    assert len(machines) >= 200
    scales = [machine.link_scale for machine in machines]
    assert min(scales) < 0.3 and max(scales) > 3.5 and abs(sum(map(math.log, scales))) < 0.1 * len(scales)
    devices = {name: len(Cluster.preset(name).devices) for name in {machine.cluster for machine in machines}}
    assert {2, 4, 8} <= {count - 1 for count in devices.values()}  # GPUs beside the host
