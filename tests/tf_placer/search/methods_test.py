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
    with pytest.raises(InputError, match=f"no method is called '{name}'; did you mean .*{near}"):
        methods.find(name)
