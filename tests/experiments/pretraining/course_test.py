"""Courses, those that ship and generated ones: the same for a seed, within limits, names and digests checked."""

import collections
import math

import numpy as np
import pytest

from experiments.pretraining.course import (
    CHOICES,
    COUNT,
    COURSE,
    LEAST_OPS,
    MOST_OPS,
    Machine,
    check_digest,
    course_named,
    draw,
    read_course,
    scaled,
    seconds,
    without,
)
from experiments.pretraining.random_networks import FAMILIES, build
from tests.refused import refused
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.analytic_problem import analytic_problem

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
def course_file(tmp_path):
    path = tmp_path / "course.toml"
    path.write_text(SMALL)
    return path


def test_programs_are_in_order_with_their_settings_and_machines(course_file):
    programs = read_course(seed=3, path=course_file)
    names = [program.name for program in programs]
    assert names == ["two_towers", "two_towers depth=2", "dense_small layers=2"]
    assert [program.family for program in programs] == ["a", "a", "b"]
    for program in programs:
        first, second, third = program.machines
        # Two clusters for three machines: both are there before one comes again.
        assert {first.cluster, second.cluster} == {"k40x2", "p100x4"} and third.cluster == first.cluster
        assert all(0.5 <= machine.link_scale <= 2.0 for machine in program.machines)


def test_machines_are_those_of_the_seed_and_of_no_other_program(course_file):
    one, again, other = (read_course(seed, course_file) for seed in (3, 3, 4))
    assert one == again != other
    course_file.write_text(SMALL.replace("two_towers = [{}", "branches_small = [{}]\ntwo_towers = [{}"))
    assert read_course(3, course_file)[1:] == one


def test_families_are_left_out_by_name(course_file):
    programs = read_course(0, course_file)
    assert [program.family for program in without(programs, ["a"])] == ["b"]
    assert without(programs, []) == programs
    with refused("no family 'c'"):
        without(programs, ["c"])
    with refused("leave some in"):
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
def test_a_wrong_file_is_told_with_its_name(course_file, before, after, told):
    course_file.write_text(SMALL.replace(before, after))
    with refused(told) as raised:
        read_course(0, course_file)
    assert str(raised.value).startswith(str(course_file))


def test_the_course_that_ships_has_200_problems_of_2_to_8_devices_and_links_of_a_quarter_to_four():
    programs = read_course(0, COURSE)
    machines = [machine for program in programs for machine in program.machines]
    assert len(machines) >= 200
    scales = [machine.link_scale for machine in machines]
    assert min(scales) < 0.3 and max(scales) > 3.5 and abs(sum(map(math.log, scales))) < 0.1 * len(scales)
    devices = {name: len(Cluster.preset(name).devices) for name in {machine.cluster for machine in machines}}
    assert {2, 4, 8} <= {count - 1 for count in devices.values()}  # GPUs beside the host


# More of them is drawn than the settings say.
DRAWN = ("cells", "recurrent", "transformer", "mixture_of_experts", "towers", "message_passing")


@pytest.fixture(scope="module")
def course():
    return course_named("generated", seed=0)


def test_a_course_is_that_of_its_seed_and_a_shorter_one_its_beginning(course):
    assert len(course) == COUNT >= 500
    assert course_named("generated:30", seed=0) == course[:30]
    assert course_named("workloads,generated:30", seed=0) == (*read_course(seed=0), *course[:30])
    other = course_named("generated:30", seed=1)
    assert len({str(program.settings) for program in (*course, *other)}) == COUNT + 30


def test_all_families_are_drawn_alike_often_and_some_programs_in_parts(course):
    count = collections.Counter(program.family for program in course)
    assert count.keys() == FAMILIES.keys() == CHOICES["families"].keys()
    assert max(count.values()) - min(count.values()) <= 1
    in_parts = {program.family for program in course if program.settings["parts"] > 1}
    assert in_parts == FAMILIES.keys()
    assert {program.family for program in without(course, ["cells"])} == FAMILIES.keys() - {"cells"}


def test_estimates_of_ops_are_spread_within_the_limits_with_room_for_errors(course):
    ops = sorted(program.ops for program in course)
    assert 1.3 * LEAST_OPS < ops[0] < 1200 and 12_000 < ops[-1] < MOST_OPS / 1.3
    assert 3000 < ops[COUNT // 2] < 8000
    assert seconds(course, placements=4000) < 6 * 3600


def test_machines_have_2_to_8_gpus_of_one_or_two_models_and_links_of_a_quarter_to_four(course):
    machines = [machine for program in course for machine in program.machines]
    assert {len(machine.gpus) for machine in machines} == set(CHOICES["gpus"]) == set(range(2, 9))
    assert all(0.25 <= machine.link_scale <= 4 for machine in machines)
    pairs = 0
    for machine in machines[:60]:
        cluster = machine.build()
        *gpus, host = cluster.devices
        own = Cluster.preset(machine.cluster)
        assert [gpu.name for gpu in gpus] == [gpu.name for gpu in own.devices[: len(gpus)]]
        assert host == own.devices[-1]
        assert [gpu.model for gpu in gpus] == [Cluster.preset(name).devices[0].model for name in machine.gpus]
        kept = [*range(len(gpus)), -1]
        own_links = scaled(own, machine.link_scale).link_bytes_per_s()[np.ix_(kept, kept)]
        np.testing.assert_array_equal(cluster.link_bytes_per_s(), own_links)
        pairs += len(gpus) == 2 and gpus[0].model != gpus[1].model
    assert pairs


@pytest.mark.parametrize("family", FAMILIES)
def test_a_program_is_traced_as_the_same_graph_again_and_about_as_large_as_estimated(family):
    choices = CHOICES["families"][family]
    settings = {name: values[-1] if values[-1] is True else values[0] for name, values in choices.items()}
    settings["depth"] = 2
    items = [build(family, 1, seed=seed, optimizer="sgd", **settings) for seed in (3, 3, 4)]
    first, again, other = (item.fingerprint for item in items)
    assert first == again
    assert (first != other) == (family in DRAWN)
    assert 0.6 < items[0].index.num_ops / FAMILIES[family][2](**settings).ops < 1.5


def test_a_batch_in_parts_has_copies_and_other_digests():
    settings = {"depth": 1, "towers": 2, "width": 32, "batch": 16, "vocabulary": 50, "mixes": 1}
    whole, parts = (build("towers", count, seed=3, optimizer="sgd", **settings) for count in (1, 2))
    assert whole.splitting is None and parts.splitting.parts == 2
    assert whole.index.num_ops < parts.index.num_ops < 2.5 * whole.index.num_ops
    assert whole.fingerprint != parts.fingerprint


@pytest.mark.medium
@pytest.mark.parametrize("family", FAMILIES)
def test_a_drawn_program_is_within_the_limits_and_fits_its_machines(course, family):
    program = min((one for one in course if one.family == family), key=lambda one: one.ops)
    item = build(program.family, **program.settings)
    assert LEAST_OPS <= item.index.num_ops <= MOST_OPS
    for machine in program.machines:
        problem = analytic_problem(item, machine.build())
        everywhere = np.stack([problem.everything_on(device) for device in range(problem.num_devices)])
        assert np.isfinite(SimulatedEvaluator(problem).evaluate(everywhere).runtime_s).any()


def test_digests_are_written_as_programs_are_traced_and_checked_by_the_next_run(tmp_path, course):
    file = tmp_path / "generated_0.csv"
    check_digest(course[0], 900, "aaaa", file)
    first = file.read_text()
    check_digest(course[1], 1900, "bbbb", file)
    both = file.read_text()
    assert both.startswith(first) and len(both.splitlines()) == 3
    check_digest(course[0], 900, "aaaa", file)  # a run that goes on where this one was killed
    assert file.read_text() == both
    for ops, fingerprint, program in ((900, "cccc", course[0]), (901, "aaaa", course[0])):
        with refused(r"generated_0\.csv: program 0 .* delete it"):
            check_digest(program, ops, fingerprint, file)
    with refused("program 0"):
        check_digest(draw(0, seed=1), 900, "aaaa", file)
    assert file.read_text() == both


@pytest.mark.parametrize("content", ["", "number,ops\n0,900\n", '0,"', "\n"])
def test_a_file_of_no_digests_is_new_or_refused(tmp_path, course, content):
    file = tmp_path / "generated_0.csv"
    file.write_text(content)
    if content.strip():
        with refused(r"generated_0\.csv"):
            check_digest(course[0], 900, "aaaa", file)
        assert file.read_text() == content
    else:
        check_digest(course[0], 900, "aaaa", file)
        assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "name", ["generatd", "generated:", "generated:0", "generated:ten", "workloads:3", "", "workloads,"]
)
def test_a_wrong_course_is_one_line_with_those_that_there_are(name):
    with refused(r"no course is called .* give workloads"):
        course_named(name, seed=0)
