"""Public names of packages are there when they are asked for, and cost nothing before."""

import importlib
import json
import pathlib
import subprocess
import sys
import types

import pytest

_ROOT = pathlib.Path(__file__).absolute().parents[3]

# What a program of its own has after each step.
_PROGRAM = """
import json, sys
import tf_placer
found = {"imported": "tensorflow" in sys.modules, "listed": "auto_place" in dir(tf_placer)}
tf_placer.InputError, tf_placer.Cluster.preset("k40x2")
found["light names"] = "tensorflow" in sys.modules
import tf_placer.search.methods
found["a package of the function's name"] = tf_placer.search.__name__ + type(tf_placer.search).__name__
from tf_placer.search import methods, search
found["function"] = type(search).__name__
found["submodule"] = type(methods).__name__
found["heavy names"] = "tensorflow" in sys.modules
print(json.dumps(found))
"""


@pytest.mark.medium
def test_tensorflow_is_loaded_with_the_first_name_that_needs_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=_ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == {
        "imported": False,
        "listed": True,
        "light names": False,
        "a package of the function's name": "searchfunction",
        "function": "function",
        "submodule": "module",
        "heavy names": True,
    }


@pytest.mark.parametrize(
    "name",
    [
        "tf_placer",
        "tf_placer.search",
        "tf_placer.workloads",
        "tf_placer.transform.split",
        "tf_placer.transform.fusion",
    ],
)
def test_every_public_name_is_what_its_module_has(name: str) -> None:
    face = importlib.import_module(name)
    for public in face.__all__:
        value = getattr(face, public)
        assert not isinstance(value, types.ModuleType), public
        assert value is getattr(face, public), "it is looked up once"
    assert set(face.__all__) <= set(dir(face))
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'serach'"):
        _ = face.serach
    with pytest.raises(ImportError, match="serach"):
        exec(f"from {name} import serach")
