"""Plans of a split program that need no search."""

import numpy as np
import pytest

import tf_placer
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.grouper.groups import Groups
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.transform.split.plans import (
    SHARED,
    carried_over,
    copies_of_units,
    data_parallel_plan,
    part_of_unit,
)
from tf_placer.transform.split.split_batch import SplitProgram, split_program

GPUS = (0, 1)


@pytest.fixture(scope="module")
def whole() -> Problem:
    return tf_placer.build_problem(workloads.build("dense_small"), tf_placer.Cluster.preset("p100x2"))


@pytest.fixture(scope="module")
def program() -> SplitProgram:
    return split_program(workloads.build("dense_small"), 2)


@pytest.fixture(scope="module")
def problem(program: SplitProgram) -> Problem:
    return tf_placer.build_problem(program.item, tf_placer.Cluster.preset("p100x2"))


def test_every_copy_is_on_its_device_and_variables_are_shared_out(
    program: SplitProgram, problem: Problem
) -> None:
    row = data_parallel_plan(program, problem, GPUS)
    problem.check_legal(row)
    part = part_of_unit(problem)
    on_gpus = problem.allowed[:, list(GPUS)].all(axis=1)
    assert (row == part)[(part != SHARED) & on_gpus].all()
    held = [int(problem.resident_bytes[row == gpu].sum()) for gpu in GPUS]
    assert abs(held[0] - held[1]) <= problem.resident_bytes.max()


def test_more_parts_than_devices_go_round(problem: Problem) -> None:
    program = split_program(workloads.build("dense_small"), 4)
    found = tf_placer.build_problem(program.item, problem.cluster)
    row, part = data_parallel_plan(program, found, GPUS), part_of_unit(found)
    on_gpus = found.allowed[:, list(GPUS)].all(axis=1)
    assert set(part[on_gpus]) >= {0, 1, 2, 3}
    assert (row == part % 2)[(part != SHARED) & on_gpus].all()


def test_a_placement_of_the_whole_is_carried_over_op_by_op(
    program: SplitProgram, problem: Problem, whole: Problem
) -> None:
    drawn = np.random.default_rng(0).integers(0, 2, whole.num_units)
    placement = Placement(whole, whole.legalized(drawn[np.newaxis])[0])
    row = carried_over(program, problem, placement)
    problem.check_legal(row)
    of_op = dict(zip(whole.op_names, placement.device_of_op.tolist(), strict=True))
    same = [
        row[unit] == of_op[program.origin_of[name]]
        for name, unit in zip(problem.op_names, problem.unit_of_op, strict=True)
    ]
    assert np.mean(same) > 0.9  # a unit of several ops goes with the costliest


def test_another_program_is_refused(program: SplitProgram, whole: Problem) -> None:
    with pytest.raises(InputError, match="another program"):
        data_parallel_plan(program, whole, GPUS)


def test_copies_are_the_units_that_do_the_same_for_other_parts(problem: Problem) -> None:
    part, copies = copies_of_units(problem)
    assert copies.shape == (problem.num_units, 2)
    found = 0
    for unit in np.flatnonzero(part != SHARED).tolist():
        assert copies[unit, part[unit]] == -1
        copy = int(copies[unit, 1 - part[unit]])
        if copy >= 0:
            found += 1
            assert part[copy] == 1 - part[unit]
            types = [
                {
                    name.partition("/")[2]
                    for name, of in zip(problem.op_names, problem.unit_of_op, strict=True)
                    if of == one
                }
                for one in (unit, copy)
            ]
            assert types[0] & types[1]
    assert found > 10
    assert (part[problem.resident_bytes > 0] == SHARED).all()


def test_a_whole_batch_has_no_copies(whole: Problem) -> None:
    part, copies = copies_of_units(whole)
    assert (part == SHARED).all() and copies.shape == (whole.num_units, 0)


def test_groups_have_the_copies_of_their_units(problem: Problem) -> None:
    part = part_of_unit(problem)
    groups = Groups.of(problem, part + 1)  # one for what is shared, one for each part
    of_group, copies = copies_of_units(groups.coarse_problem())
    assert of_group.tolist() == [SHARED, 0, 1]
    assert copies.tolist() == [[-1, -1], [-1, 2], [1, -1]]
