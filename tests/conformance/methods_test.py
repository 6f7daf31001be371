"""What holds of every search method: those of ``descriptors.METHODS``, which are all there are."""

import ast
import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.conformance.descriptors import METHODS, MethodDescriptor
from tests.tf_placer.planners.full_devices import full_problem, loads, sized_cluster
from tests.tf_placer.problem.small_problems import (
    altered,
    branches_optimum_ns,
    branches_problem,
    problem_of,
    random_problem,
    small_cluster,
)
from tests.tf_placer.search.killed import DiesAfter, Kill, Measuring, comparable
from tf_placer.base import method_spec
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, NoSettings, Role
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.methods import configured
from tf_placer.search.recorder import SearchResult
from tf_placer.search.search import NothingFits, search

BRANCHES, LENGTH = 4, 4
SPECS = tuple(map(methods.find, methods.BUILT_IN))


def marked(method: MethodDescriptor, slow: bool = False) -> Any:
    """A method as a parameter; skipped where what it needs is not installed."""
    marks = [pytest.mark.skip(reason=method.missing)] if method.missing else []
    return pytest.param(method, id=method.name, marks=[*marks, *([pytest.mark.slow] if slow else [])])


EVERY = pytest.mark.parametrize("method", [marked(method) for method in METHODS])
# The same where one test of a learned method has to do for the fast suite: tracing it takes seconds.
QUICK = pytest.mark.parametrize(
    "method", [marked(method, slow=methods.find(method.name).kind == Kind.LEARNED) for method in METHODS]
)


def searched(method: MethodDescriptor, problem: Problem, **more: Any) -> SearchResult:
    given = {"budget_evaluations": method.evaluations, "seed": 3, "config": method.config} | more
    return search(problem, method.name, **given)


def suited(method: MethodDescriptor, problem: Problem) -> Problem:
    """The problem, its last device a CPU where the method needs one."""
    *types, _ = (device.type for device in problem.cluster.devices)
    return altered(problem, {"type": [*types, "CPU"]}) if method.needs_cpu else problem


def test_the_list_is_complete():
    assert [method.name for method in METHODS] == sorted(spec.name for spec in SPECS)
    for spec in SPECS:
        has_settings = spec.config is not NoSettings
        assert spec.summary.endswith(".") and len(spec.summary) < 120, spec.name
        assert spec.goes_on == (spec.kind != Kind.CONSTRUCTIVE), spec.name
        assert dataclasses.asdict(configured(spec)) or not has_settings


@EVERY
def test_it_finds_what_it_can_of_a_toy_problem(method):
    problem = suited(method, branches_problem(BRANCHES, LENGTH))
    # Where it begins anywhere, at one device: the list schedule is the optimum here.
    start = problem.everything_on(0) if methods.find(method.name).uses_start else None
    found = searched(method, problem, start=start)
    assert found.runtime_s <= method.of_optimum * branches_optimum_ns(BRANCHES, LENGTH) / 1e9
    assert found.settings == dataclasses.asdict(configured(methods.find(method.name), method.config))
    assert found.evaluations <= method.evaluations


@pytest.mark.medium
@QUICK
def test_killed_and_gone_on_with_it_tries_what_it_would_have_tried(method, tmp_path):
    problem = suited(method, random_problem(np.random.default_rng(1), 12, 3))  # with masks
    count = 40
    whole = Measuring(problem)
    expected = searched(method, problem, evaluator=whole, budget_evaluations=count)
    for row in whole.rows:
        problem.check_legal(row)
    killed, last = Measuring(problem), Measuring(problem)
    with pytest.raises(Kill):
        searched(
            method,
            problem,
            evaluator=killed,
            checkpoint=tmp_path,
            progress=DiesAfter(1 if len(expected.history) == 1 else 2),
            budget_evaluations=count,
        )
    again = searched(method, problem, evaluator=last, checkpoint=tmp_path, budget_evaluations=count)
    assert comparable(again) == comparable(expected)
    # What is done is not given again as the result of other settings.
    # One that is not off: what is off may need others to be set.
    counts = {name: value for name, value in again.settings.items() if type(value) in (int, float) and value}
    for name, value in list(counts.items())[:1]:
        changed = {
            **dataclasses.asdict(configured(methods.find(method.name), method.config)),
            name: value + 1,
        }
        with pytest.raises(InputError, match=f"holds a search with {name} "):
            searched(method, problem, checkpoint=tmp_path, budget_evaluations=count, config=changed)


@pytest.mark.medium
@QUICK
def test_the_seed_says_what_is_tried(method):
    problem = suited(method, random_problem(np.random.default_rng(1), 14, 3))
    one, same, other = (searched(method, problem, seed=seed) for seed in (3, 3, 4))
    assert comparable(one) == comparable(same)
    assert (comparable(one)[0] != comparable(other)[0]) == method.draws


@pytest.mark.medium
@QUICK
def test_what_it_finds_fits(method):
    problem = suited(method, full_problem(3, 0.8, seed=0, more_bytes=50_000))
    try:
        found = searched(method, problem)
    except NothingFits:
        assert not method.keeps_within_memory
        return
    row = np.array(found.placement.device_of_unit)
    assert (loads(problem, row) <= problem.cluster.capacity_bytes()).all()
    assert all(found.peak_bytes[one.name] <= one.memory_bytes for one in problem.cluster.devices)


MAKING = [method for method in METHODS if methods.find(method.name).kind == Kind.CONSTRUCTIVE]
CONSTRUCTIVE = pytest.mark.parametrize("method", [marked(method) for method in MAKING])


def rows_of(method: MethodDescriptor, problem: Problem) -> np.ndarray:
    """[K, U] what a constructive method makes."""
    spec = methods.find(method.name)
    return spec.build(problem, configured(spec, method.config), 0)


@CONSTRUCTIVE
@pytest.mark.parametrize("seed", range(5))
def test_every_row_is_legal(method, seed):
    problem = suited(method, random_problem(np.random.default_rng(seed), 15, 3))
    rows = rows_of(method, problem)
    assert len(rows) and rows.dtype == np.int32
    for row in rows:
        problem.check_legal(row)


@pytest.mark.parametrize(
    ("method", "devices", "fill"),
    [
        pytest.param(
            method,
            devices,
            fill,
            id=f"{fill}-{devices}-{method.name}",
            marks=marked(method, slow=method.is_traced and (devices, fill) != (3, 0.9)).marks,
        )
        for fill in (0.6, 0.75, 0.9)
        for devices in (2, 3, 4)
        for method in MAKING
    ],
)
def test_full_devices_hold_what_is_put_there(method, devices, fill):
    if not method.keeps_within_memory:
        return
    for seed in range(5):
        problem = full_problem(devices, fill, seed)
        rows = rows_of(method, problem)
        assert len(rows)
        assert all((loads(problem, row) <= problem.cluster.capacity_bytes()).all() for row in rows)


@CONSTRUCTIVE
def test_where_nothing_can_fit_nothing_is_made(method):
    problem = problem_of([1] * 3, [(0, 1)], cluster=sized_cluster([10, 10]), resident_bytes=10)
    rows = rows_of(method, suited(method, problem))
    if method.keeps_within_memory:
        assert rows.shape == (0, 3)
    else:
        assert len(rows), "which a search tells as what did not fit"


@QUICK
@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(lambda: problem_of([7], []), id="one op"),
        pytest.param(lambda: problem_of([7, 5, 3], [(0, 1), (1, 2)], 9, small_cluster(1)), id="one device"),
        pytest.param(lambda: problem_of([0, 0], [(0, 1)], 5), id="nothing takes time"),
    ],
)
def test_it_copes_with_the_least(method, problem):
    method, problem = dataclasses.replace(method, evaluations=20), suited(method, problem())
    assert searched(method, problem).runtime_s == problem.compute_ns[:, 0].sum() / 1e9


@EVERY
def test_a_setting_that_it_lacks_is_refused(method):
    with pytest.raises(InputError, match=f"method '{method.name}' has no setting 'warp'; "):
        searched(method, branches_problem(1, 1), config={"warp": 9})


def test_no_module_names_a_method(root):
    """Whoever means a method by what it is to the others asks for its role; its row alone says its name."""
    names = {spec.name for spec in SPECS}
    # It is for flags, before the methods are loaded; a test holds it equal to the rows.
    table = root / "tf_placer" / "search" / "methods.py"
    for path in sorted((root / "tf_placer").rglob("*.py")):
        if path.name == "__init__.py" or path == table:
            continue
        tree = ast.parse(path.read_text())
        allowed = _names_of_rows(tree) | _words_of_parts(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in names and id(node) not in allowed:
                pytest.fail(f"{path.relative_to(root)}:{node.lineno} says {node.value!r}; use search.Role")


def _words_of_parts(tree: ast.Module) -> set[int]:
    """Ids of constants in ``AUTO`` and ``Parts``: ``--parts`` without a number is spelled as a method is."""
    return {
        id(constant)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("AUTO", "Parts")
        for constant in ast.walk(node.value)
    }


def _names_of_rows(tree: ast.Module) -> set[int]:
    """Ids of the constants with which rows name themselves, and what their other columns call themselves by."""
    constants = set()
    for row in ast.walk(tree):
        if isinstance(row, ast.Call) and ast.unparse(row.func) == method_spec.method.__name__:
            own = {name.value for name in row.args[:1] if isinstance(name, ast.Constant)}
            constants |= {
                id(node) for node in ast.walk(row) if isinstance(node, ast.Constant) and node.value in own
            }
    return constants


def test_roles_are_those_of_the_table():
    beside = {spec.name for spec in methods.having(Role.BESIDE)}
    constructive = {spec.name for spec in SPECS if spec.kind == Kind.CONSTRUCTIVE}
    assert beside <= constructive and methods.REFERENCE in beside
