"""The table of methods, settings of a row, and budgets."""

import dataclasses
import math

import numpy as np
import pytest

import tf_placer
from tests.tf_placer.problem.multi_branch import multi_branch_problem
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec, Role
from tf_placer.cluster.cluster import Cluster
from tf_placer.planners.plain import RandomSearchConfig
from tf_placer.search import methods
from tf_placer.search.methods import Budget, configured, recorded
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


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a test."""

    count: int = 3
    rate: float = 0.5
    keep: bool = True
    word: str = "a"
    sizes: tuple[int, ...] = (1, 2)


SPEC = MethodSpec("a_test", Kind.CONSTRUCTIVE, "Does nothing.", lambda *given: given, Config)


def test_an_instance_is_taken_as_it_is_and_a_dict_changes_the_default() -> None:
    assert configured(SPEC) == Config()
    given = Config(count=4)
    assert configured(SPEC, given) is given
    assert configured(SPEC, {"rate": 1, "keep": False}) == Config(rate=1.0, keep=False)
    variant = dataclasses.replace(SPEC, default=Config(count=9, word="b"))
    assert configured(variant) == Config(count=9, word="b")
    assert configured(variant, {"word": "c"}) == Config(count=9, word="c")


def test_what_is_recorded_is_json() -> None:
    assert recorded(Config()) == {"count": 3, "rate": 0.5, "keep": True, "word": "a", "sizes": (1, 2)}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (3, "config is 3; give a Config, the settings of method 'a_test', or a dict"),
        (Config, "give a Config"),
        ({"cuont": 3}, "has no setting 'cuont'; did you mean 'count'"),
        ({3: 3}, "has no setting 3"),
        ({"count": 1.5}, "method 'a_test': count is 1.5; give a whole number"),
        ({"count": "3"}, "count is '3'"),
        ({"rate": "fast"}, "rate is 'fast'"),
        ({"keep": 1}, "keep is 1"),
        ({"word": 1}, "word is 1"),
    ],
)
def test_what_is_wrong_is_one_line(config: object, message: str) -> None:
    with pytest.raises(InputError) as error:
        configured(SPEC, config)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("seconds", "evaluations", "message"),
    [
        (math.inf, None, "no budget"),
        (0.0, None, "budget_s is 0"),
        (-1.0, 10, "budget_s is -1"),
        (math.nan, 10, "budget_s is nan"),
        (1.0, 0, "budget_evaluations is 0"),
        (math.inf, -3, "budget_evaluations is -3"),
    ],
)
def test_no_positive_budget_is_refused(seconds, evaluations, message):
    with pytest.raises(InputError, match=message):
        Budget(seconds, evaluations)


@pytest.mark.parametrize(
    ("seconds", "evaluations", "message"),
    [
        ("5", None, "budget_s is '5'; give a number above 0"),
        (None, 5, "budget_s is None"),
        (True, None, "budget_s is True"),
        (1 + 2j, None, "budget_s is"),
        (1.0, 1.5, "budget_evaluations is 1.5; give a whole number"),
        (1.0, "7", "budget_evaluations is '7'"),
    ],
)
def test_what_is_no_number_is_refused(seconds, evaluations, message):
    with pytest.raises(InputError, match=message) as error:
        Budget(seconds, evaluations)
    assert "\n" not in str(error.value)


def test_numbers_of_numpy_become_plain_ones():
    budget = Budget(np.float32(1.5), np.int64(3))
    assert type(budget.seconds) is float and type(budget.evaluations) is int
    assert budget == Budget(1.5, 3)


def test_what_is_left():
    assert Budget(1.0).left(10**9) == math.inf
    assert Budget(evaluations=10).left(7) == 3


def test_a_control_has_as_many_evaluations_and_no_more_time():
    assert Budget(60.0).capped(500) == Budget(60.0, 500)
    assert Budget(evaluations=700).capped(500) == Budget(math.inf, 500)
