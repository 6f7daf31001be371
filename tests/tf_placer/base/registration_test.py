"""Names that flags and files can hold, and values that can be called."""

from __future__ import annotations

import pytest

from tf_placer.base.arguments import InputError, check_registration


@pytest.mark.parametrize("name", ["a", "cut_once", "two_towers_2"])
def test_a_new_name_is_taken(name):
    check_registration("method", name, print, {"hdp"})


@pytest.mark.parametrize(
    "name", ["", "Cut", "_cut", "2cut", "a,b", "a/b", "a b", "a\n", "é", None, 3, b"cut"]
)
def test_what_flags_and_files_cannot_hold_is_refused(name):
    with pytest.raises(InputError, match="is no name of a method; use small letters, digits and _"):
        check_registration("method", name, print, {"hdp"})


def test_built_in_names_keep_their_meaning():
    with pytest.raises(InputError, match="'hdp' comes with tf_placer; give your method another name"):
        check_registration("method", "hdp", print, {"hdp"})


def test_a_value_that_cannot_be_called_is_refused():
    with pytest.raises(InputError, match="workload 'mine' is 3, which cannot be called; give a function"):
        check_registration("workload", "mine", 3, ())
