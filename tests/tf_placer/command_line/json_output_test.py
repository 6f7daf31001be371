"""``--json``: what is written parses, and what else is printed goes to standard error."""

import os
import sys

import pytest

from tf_placer.__main__ import standard_output_silenced


def test_python_and_the_system_print_to_standard_error_within(capfd):
    print("before")
    with standard_output_silenced():
        print("python")
        os.write(1, b"system\n")
        os.system("echo child")
    with pytest.raises(KeyError), standard_output_silenced():
        raise KeyError
    print("after")
    sys.stdout.flush()
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert sorted(err.split()) == ["child", "python", "system"]
