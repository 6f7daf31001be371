"""Arguments and settings are taken as meant or refused in one line; public names cost nothing before they are used."""

import dataclasses
import importlib
import json
import math
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.own_process import python
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, check_registration, exact, plain, told
from tf_placer.base.method_spec import Settings, setting


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_whole_numbers_of_python_and_numpy(value):
    taken = arguments.whole_number("seed", value, 0, 9)
    assert taken == 3
    assert type(taken) is int


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2)])
def test_numbers_of_python_and_numpy(value):
    taken = arguments.number("budget_s", value, above=0)
    assert taken == 2.0
    assert type(taken) is float


def test_texts_and_paths_of_numpy_and_the_operating_system():
    assert arguments.text("name", np.str_("a")) == "a"
    assert arguments.one_of("kind", np.str_("a"), ("a", "b")) == "a"
    assert arguments.path("out", pathlib.Path("a")) == pathlib.Path("a")
    assert arguments.path("out", "a/b") == pathlib.Path("a/b")
    assert arguments.truth("again", np.True_) is True


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: arguments.whole_number("n", 1.5, 0, 9), "n is 1.5; give a whole number from 0 to 9"),
        (lambda: arguments.whole_number("n", True, 0), "n is True; give a whole number of at least 0"),
        (lambda: arguments.whole_number("n", "3"), "n is '3'; give a whole number"),
        (lambda: arguments.whole_number("n", np.array([3])), "n is array([3]); give a whole number"),
        (lambda: arguments.whole_number("n", 10, most=9), "n is 10; give a whole number of at most 9"),
        (lambda: arguments.whole_number("n", 10**9000, 0, 9), "n is a huge number; give a whole"),
        (lambda: arguments.number("s", "5", above=0), "s is '5'; give a number above 0"),
        (lambda: arguments.number("s", float("nan"), above=0), "s is nan; give a number above 0"),
        (lambda: arguments.number("s", 0, above=0), "s is 0; give a number above 0"),
        (lambda: arguments.number("s", False, above=-1), "s is False; give a number above -1"),
        (lambda: arguments.number("s", float("inf"), finite=True), "s is inf; give a finite number"),
        (lambda: arguments.number("s", 10**400, finite=True), "give a finite number"),
        (lambda: arguments.number("s", 2, above=0, most=1), "give a number above 0 and of at most 1"),
        (lambda: arguments.truth("again", 1), "again is 1; give True or False"),
        (lambda: arguments.text("name", ""), "name is ''; give a text"),
        (lambda: arguments.text("name", b"a"), "name is b'a'; give a text"),
        (lambda: arguments.one_of("kind", ["a"], ("a", "b")), "kind is ['a']; give one of a, b"),
        (lambda: arguments.path("out", ""), "out is ''; give a path"),
        (lambda: arguments.path("out", b"a"), "out is b'a'; give a path"),
        (lambda: arguments.path("out", "a\0b"), "give a path"),
        (lambda: arguments.instance_of("fn", 3, str, "give a str"), "fn is 3, not a str; give a str"),
        (lambda: arguments.items_of("names", "ab", str, "give a list"), "names is 'ab'; give a list"),
        (lambda: arguments.items_of("names", ["a", 1], str, "text"), "names[1] is 1, not a str; text"),
        (lambda: arguments.texts_by_text("pins", ["a"], "give a dict"), "pins is ['a']; give a dict"),
        (lambda: arguments.texts_by_text("pins", {"a": 1}, "give texts"), "pins has 'a': 1; give texts"),
        (lambda: arguments.has_parts("e", 3, ("evaluate",), "one"), "e is 3, which has no evaluate; one"),
        (lambda: arguments.has_parts("e", str, ("upper",), "give one"), "which has no upper; give one"),
        (lambda: arguments.function("fn", 3, "give a function"), "fn is 3; give a function"),
        (lambda: arguments.text("name", ["a\nb" * 99]), "give a text"),
    ],
)
def test_what_is_refused(check, message):
    with pytest.raises(InputError) as error:
        check()
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


def test_the_nearest_names():
    assert arguments.nearest("hpd", ["hdp", "random"]) == "did you mean 'hdp'?"
    assert arguments.nearest("zzz", ["b", "a"]) == "known: a, b"
    assert arguments.nearest("zzz", []) == "there is none"


def test_the_nearest_of_many_names():
    ops = [f"model/block_{i}/conv/Conv2D" for i in range(50)] + ["model/head/logits/MatMul"]
    # Part of a name, in either case; the last part of a path with a letter wrong; nothing like it.
    assert arguments.nearest("LOGITS", ops) == "did you mean 'model/head/logits/MatMul'?"
    assert arguments.nearest("MatMull", ops) == "did you mean 'model/head/logits/MatMul'?"
    assert arguments.nearest("Conv2d", ops).startswith("did you mean 'model/block_0/conv/Conv2D'")
    found = arguments.nearest("zzz", ops)
    assert found.startswith("there are 51, the nearest are 'model/") and found.count("'model/") == 3


@pytest.mark.parametrize("value", [[1, 2], [1.0, 2.0], np.array([1, 2], np.uint8), [True, False]])
def test_arrays_of_whole_numbers_of_any_type_are_taken(value):
    taken = exact("x", value, np.int64)
    assert taken.dtype == np.int64
    np.testing.assert_array_equal(taken, np.asarray(value).astype(int))
    assert exact("allowed", [0, 1], bool).tolist() == [False, True]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *((value, np.int32) for value in ([0.003], [float("nan")], [float("inf")], [2**31], ["7"], [None])),
        (np.array([2**63], np.uint64), np.int32),
        ([2], bool),
    ],
)
def test_arrays_that_a_cast_would_change_are_refused(value, dtype):
    with pytest.raises(InputError, match=r"compute_ns: expected whole numbers that fit (int32|bool)"):
        exact("compute_ns", value, dtype)


@pytest.mark.parametrize("name", ["a", "cut_once", "two_towers_2"])
def test_a_new_name_can_be_registered(name):
    check_registration("method", name, print, {"hdp"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(
            (name, print, "is no name of a method; use small letters, digits and _")
            for name in ("", "Cut", "_cut", "2cut", "a,b", "a/b", "a b", "a\n", "é", None, 3, b"cut")
        ),
        ("hdp", print, "'hdp' comes with tf_placer; give your method another name"),
        ("mine", 3, "method 'mine' is 3, which cannot be called; give a function"),
    ],
)
def test_what_cannot_be_registered(name, value, message):
    with pytest.raises(InputError, match=message):
        check_registration("method", name, value, {"hdp"})


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (
            lambda: tf.linalg.matmul(tf.ones((2, 3)), tf.ones((2, 3))),
            "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]",
        ),
        (lambda: tf.function(lambda x: tf.gather(x, 9))(tf.constant([2.0])), "indices = 9 is not in [0, 1)"),
        (
            lambda: tf.function(lambda x: tf.reshape(x, [7])).get_concrete_function(tf.TensorSpec([2])),
            "Cannot reshape a tensor with 2 elements to shape [7] (7 elements) for 'Reshape = Reshape[",
        ),
        (lambda: tf.constant("a", tf.float32), "Cannot convert 'a' to EagerTensor of dtype float"),
    ],
)
def test_what_is_told_of_an_error(failing, said):
    with pytest.raises((ValueError, TypeError, tf.errors.OpError)) as error:
        failing()
    line = told(error.value)
    assert line.startswith(said)
    for inner in ("{{", "[Op:", "\n", "[[", 'File "'):
        assert inner not in line


def test_an_error_that_says_nothing():
    assert told(ValueError()) == "ValueError"
    assert told(tf.errors.InternalError(None, None, "")) == "InternalError"


def test_what_is_taken_out_of_a_message():
    assert plain("{{function_node __wrapped__F_device_/job:a}} too large [Op:F] name: ") == "too large"
    assert plain("node {{node a/b}}\n\t [[{{node a/b}}]]") == "node a/b"
    assert plain("{{colocation_node c}} is not") == "c is not"


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of a test."""

    rate: float = setting(0.5, paper=0.1, above=0, below=1)
    steps: int = setting(3, paper=0, least=0, most=9)
    width: int = setting(4, even=True)
    most_s: float = setting(60.0, finite=False)
    is_on: bool = setting(True, paper=False)
    loss: str = setting("ppo", words=("ppo", "quantile"))
    file: str = setting("", remedy="give a path")
    preset: str = setting("ours", words=("ours", "paper"))


def test_the_preset_decides_what_is_not_given():
    assert dataclasses.astuple(Config()) == (0.5, 3, 4, 60.0, True, "ppo", "", "ours")
    assert dataclasses.astuple(Config(preset="paper")) == (0.1, 0, 4, 60.0, False, "ppo", "", "paper")
    # What is given wins, also where it is as the other preset has it.
    assert dataclasses.astuple(Config(preset="paper", rate=0.5))[:2] == (0.5, 0)


def test_values_are_kept_as_pythons_own():
    config = Config(np.float32(0.5), np.int64(8), is_on=np.bool_(False), most_s=7)
    assert [type(value) for value in (config.rate, config.steps, config.most_s)] == [float, int, float]
    assert config.is_on is False and Config(most_s=math.inf).most_s == math.inf


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rate": 0.0}, "rate is 0.0; give a finite number above 0 and below 1"),
        ({"rate": math.nan}, "rate is nan; give a finite number above 0 and below 1"),
        ({"steps": 10}, "steps is 10; give a whole number from 0 to 9"),
        ({"width": 5}, "width is 5; give an even number"),
        ({"is_on": 1}, "is_on is 1; give True or False"),
        ({"loss": "ppo2"}, "loss is 'ppo2'; give one of ppo, quantile"),
        ({"file": None}, "file is None, not a str; give a path"),
        ({"preset": "papier"}, "preset is 'papier'; give one of ours, paper"),
    ],
)
def test_what_is_not_possible_is_named_with_a_remedy(given, told):
    with pytest.raises(InputError) as caught:
        Config(**given)
    assert str(caught.value) == told


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
def test_tensorflow_is_loaded_with_the_first_name_that_needs_it():
    assert json.loads(python("-c", _PROGRAM).stdout) == {
        "imported": False,
        "listed": True,
        "light names": False,
        "a package of the function's name": "searchfunction",
        "function": "function",
        "submodule": "module",
        "heavy names": True,
    }


@pytest.mark.parametrize(
    "name", ["tf_placer", "tf_placer.search", "tf_placer.workloads", "tf_placer.transform.split"]
)
def test_every_public_name_is_what_its_module_has(name):
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
