"""Methods by name."""

import pytest

from tf_placer.errors import InputError
from tf_placer.search import methods


def test_names_are_found_and_described():
    assert {"hdp", "random", "single"} <= set(methods.names())
    for name in methods.names():
        assert methods.find(name).run.__doc__
        assert methods.describe(name) and "\n" not in methods.describe(name)


@pytest.mark.parametrize(("name", "near"), [("hpd", "hdp"), ("rand", "random"), ("zzz", "single")])
def test_an_unknown_name_gets_the_nearest_ones(name, near):
    with pytest.raises(InputError, match=f"no method is called '{name}'; (did you mean|known:) .*{near}"):
        methods.find(name)


@pytest.fixture
def methods_as_they_were(monkeypatch):
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))


def nothing_new(context):
    """Tries nothing new."""
    return methods.single(context)


@pytest.mark.usefixtures("methods_as_they_were")
def test_a_registered_method_is_found_like_any_other():
    methods.register("nothing_new", nothing_new)
    assert methods.find("nothing_new").run is nothing_new
    assert "nothing_new" in methods.names()
    assert methods.describe("nothing_new") == "Tries nothing new."
    methods.register("nothing_new", nothing_new)  # a notebook's cell that is run again


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
