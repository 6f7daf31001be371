"""Methods by name."""

import dataclasses

import numpy as np
import pytest

import tf_placer
from tests.tf_placer.problem.multi_branch import multi_branch_problem
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Role
from tf_placer.cluster.cluster import Cluster
from tf_placer.planners.plain import RandomSearchConfig
from tf_placer.search import methods
from tf_placer.search.round import evaluated
from tf_placer.search.search import search


def test_names_are_found_and_described():
    assert {"hdp", "random", "single"} <= set(methods.names())
    assert tf_placer.methods() == methods.names()
    for name in methods.names():
        assert methods.find(name).name == name
        assert methods.describe(name) and "\n" not in methods.describe(name)


@pytest.mark.parametrize(
    ("name", "near"), [("hpd", "hdp"), ("rand", "random"), ("zzz", "'[a-z_]+', '[a-z_]+'")]
)
def test_an_unknown_name_gets_the_nearest_ones(name, near):
    told = f"no method is called '{name}'; (did you mean|there are [0-9]+, the nearest are) .*{near}"
    with pytest.raises(InputError, match=told):
        methods.find(name)


@pytest.fixture
def methods_as_they_were(monkeypatch):
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))


def nothing_new(context):
    """Tries nothing new."""
    yield evaluated(context, context.problem.everything_on(0)[np.newaxis])


@pytest.mark.usefixtures("methods_as_they_were")
def test_a_registered_method_is_found_like_any_other():
    methods.register("nothing_new", nothing_new)
    assert "nothing_new" in methods.names()
    assert methods.describe("nothing_new") == "Tries nothing new."
    with pytest.raises(
        InputError, match="method 'nothing_new' is registered already; give another name, or rep"
    ):
        methods.register("nothing_new", nothing_new)
    methods.register("nothing_new", nothing_new, replace=True)  # a notebook's cell that is run again


@pytest.mark.usefixtures("methods_as_they_were")
def test_a_row_is_added_with_its_settings():
    spec = dataclasses.replace(
        methods.find("random"), name="thirds", default=RandomSearchConfig(batch=3), roles=frozenset()
    )
    methods.add(spec)
    result = search(multi_branch_problem(Cluster.preset("k40x2")), "thirds", budget_evaluations=7)
    assert [entry.evaluations for entry in result.history] == [3, 6, 7] and result.settings == {"batch": 3}


def test_every_role_is_taken_and_those_of_one_are_of_one():
    for role in Role:
        assert methods.having(role), role
    for role in (Role.REFERENCE, Role.CONTROL, Role.PLAIN, Role.DEFAULT):
        assert methods.the(role).name in methods.names()


@pytest.mark.usefixtures("methods_as_they_were")
@pytest.mark.parametrize(
    ("name", "method", "message"),
    [
        ("hdp", nothing_new, "'hdp' comes with tf_placer; give your method another name"),
        ("a,b", nothing_new, "'a,b' is no name of a method; use small letters, digits and _"),
        ("", nothing_new, "'' is no name of a method"),
        (None, nothing_new, "None is no name of a method"),
        ("mine", lambda context: iter(()), "method 'mine' has no docstring"),
        ("mine", "hdp", "method 'mine' is 'hdp', which cannot be called"),
    ],
)
def test_what_cannot_be_registered_is_told_and_changes_nothing(name, method, message):
    before = methods.names()
    with pytest.raises(InputError, match=message):
        methods.register(name, method)
    assert methods.names() == before
