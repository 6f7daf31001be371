"""A function in a script is placed as the command line's other programs are; what is wrong with one is one line."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.command_line.scripts.script import Script
from tf_placer.command_line.scripts.script_item import script_item
from tf_placer.command_line.source import Source

_SCRIPT = """
import sys
import keras
import tensorflow as tf
import tf_placer
from beside import WIDTH

print("printed by the script", sys.argv[1:], __name__)
weights = tf.Variable(tf.ones([WIDTH, WIDTH]))

@tf.function(input_signature=[tf.TensorSpec([None, WIDTH])])
def step(x):
    return tf.reduce_sum(tf.tanh(x @ weights))

@tf.function
def bare(x):
    return tf.sin(x)

@tf.function
def nothing():
    return tf.reduce_sum(weights)

@tf_placer.auto_place(cluster="local:1")
@tf.function
def placed(x):
    return tf.cos(x)

def wrong(x):
    y = x + 1.0
    return y + undefined

def plain(x, y):
    return {"x": x, "y": y}

concrete = step.get_concrete_function()
plain_args = (tf.ones([2, 3]), tf.TensorSpec([None, 3]))
bare_args = tf.ones([5])
wrong_args = bare_args
number = 3.0
any_rank = tf.TensorSpec(None)

def batch():
    return tf.ones([7, WIDTH]), tf.zeros([7], tf.int32)

def one():
    return tf.ones([3])

def layers():
    return [keras.Input([WIDTH]), keras.layers.Dense(3, activation="softmax")]

model = keras.Sequential(layers())
trained = keras.Sequential(layers())
trained.compile("adam", "sparse_categorical_crossentropy")

class Holder:
    inner = step
"""


@pytest.fixture
def script(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A script and another that it imports; this process is afterwards as it was."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "my_script.py").write_text(_SCRIPT)
    (folder / "beside.py").write_text("WIDTH = 8\n")
    yield folder / "my_script.py"
    for name in {"my_script", "beside"} - before:
        sys.modules.pop(name, None)


def shapes(script: pathlib.Path, name: str, args: str | None = None) -> list[tuple[int, ...]]:
    """Of what is fed."""
    return [feed.shape for feed in script_item(Script.named(f"{script}:{name}"), args, 32).feeds]


def test_arguments_are_what_the_script_says(script: pathlib.Path) -> None:
    assert shapes(script, "step") == [(32, 8)]  # the signature's open size is the batch size
    assert shapes(script, "Holder.inner") == [(32, 8)]
    assert shapes(script, "concrete") == [(32, 8)]
    assert shapes(script, "bare") == [(5,)]
    assert shapes(script, "plain") == [(2, 3), (32, 3)]
    assert shapes(script, "nothing") == []
    assert shapes(script, "placed", "one") == [(3,)]
    assert shapes(script, "bare", "one") == [(3,)]  # what is asked for comes first
    assert shapes(script, "model") == [(32, 8)]


def test_a_compiled_model_is_placed_with_its_whole_training_step(script: pathlib.Path) -> None:
    item = script_item(Script.named(f"{script}:trained"), "batch", 32)
    assert [feed.shape for feed in item.feeds] == [(7, 8), (7,)]
    trained = {variable.node for variable in item.variables if "kernel" in variable.node}
    assert len(trained) == 3, "a kernel and its two moments of Adam"
    assert "SparseSoftmaxCrossEntropyWithLogits" in item.index.op_types


def test_a_script_runs_once(script: pathlib.Path) -> None:
    source = Source(script=f"{script}:trained", args="batch")
    assert source.item() is source.item()


def test_example_args_stand_for_all_functions(script: pathlib.Path) -> None:
    script.write_text(
        "import tensorflow as tf\ndef f(x): return x\ndef example_args(): return tf.ones([4])\n"
    )
    assert shapes(script, "f") == [(4,)]


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("steps", None, "the script has no 'steps'; did you mean 'step'"),
        ("Holder.outer", None, "has no 'outer'"),
        ("number", None, "number is 3.0; name a tf.function"),
        ("Holder", None, "the class Holder"),
        (
            "placed",
            None,
            "the arguments of placed are not known; give it an input_signature, or set placed_args",
        ),
        ("trained", None, r"set trained_args in the script to a batch \(x, y\)"),
        ("bare", "ones", "--args=ones: the script has no 'ones'; did you mean 'one'"),
        ("bare", "any_rank", "says nothing of the shape; give a tensor"),
        ("bare", "plain_args", "takes 1 positional argument|too many|do not fit"),
        ("wrong", None, "line 30 of my_script.py: NameError: name 'undefined' is not defined"),
    ],
)
def test_what_cannot_be_placed_is_one_line(
    name: str, args: str | None, expected: str, script: pathlib.Path
) -> None:
    with pytest.raises(InputError, match=expected) as error:
        shapes(script, name, args)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import tensorflow\nimport no_such_thing", "line 2 of .*: ModuleNotFoundError: No module named"),
        ("x = 1\ndef f(:\n", "line 2 of my_script.py: SyntaxError: invalid syntax; it must run"),
        ("def f():\n  raise LookupError('a\\nb')\nf()\n", "line 2 of my_script.py: LookupError: .*a.*b"),
        ("import sys\nsys.exit(3)", r"it ends the process \(exit 3\); put that behind"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.parse_args()\n1 / 0",
            "line 4 of .*ZeroDivisionError",
        ),
    ],
)
def test_a_script_that_fails_is_told_with_its_line(text: str, expected: str, script: pathlib.Path) -> None:
    script.write_text(text)
    with pytest.raises(InputError, match=expected):
        shapes(script, "f")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("script.py", "names no function of a script; write FILE.py:NAME"),
        ("script.py:a b", "names no function"),
        ("nowhere.py:f", "no such file"),
        (".:f", "is no script and no module"),
        ("./:f", "that is a folder"),
    ],
)
def test_what_is_no_script(said: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        Script.named(said)


def test_a_module_is_looked_for_in_the_working_folder(
    script: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    item = script_item(Script.named("my_script:step"), None, 4)
    assert item.name == "step" and item.feeds[0].shape == (4, 8)
    with pytest.raises(InputError, match="there is no module 'nowhere'"):
        script_item(Script.named("nowhere.at_all:step"), None, 4)


def test_a_script_named_as_a_module_that_is_there_does_not_replace_it(tmp_path: pathlib.Path) -> None:
    import tensorflow as tf

    file = tmp_path / "tensorflow.py"
    file.write_text("def f(): return 1.0\n")
    found = Script.named(f"{file}:f")
    assert found.imported().f() == 1.0
    assert sys.modules["tensorflow"] is tf
    sys.modules.pop(found.module)
    sys.path.remove(str(tmp_path))


def test_nothing_is_left_beside_a_script(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "left_alone.py"
    file.write_text("def f(): return 1.0\n")
    assert Script.named(f"{file}:f").imported().f() == 1.0
    assert list(tmp_path.iterdir()) == [file]
    sys.modules.pop("left_alone")
    sys.path.remove(str(tmp_path))


def test_a_plan_remembers_the_script(
    script: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    base = ["--cluster=k40x2", "--method=single", "--budget_evaluations=4", f"--out={out}", "--batch_size=6"]
    assert run(["place", f"{script}:bare", "--args=one", *base]) == 0
    made_for = json.loads((out / "placement.json").read_text())["made_for"]
    assert made_for["script"] == f"{script}:bare" and made_for["args"] == "one"
    assert run(["explain", f"--plan={out / 'placement.json'}", "--op=Sin"]) == 0
    assert "gives [3]" in capsys.readouterr().out
    # Another program for the same plan: the script's arguments go with the script.
    assert run(["explain", "--workload=dense_small", f"--plan={out / 'placement.json'}", "--op=Sin"]) == 2
    assert "made for another graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["place", "a.py:f", "b.py:f"], "takes one word beside flags, got 'b.py:f' too"),
        (["place", "--script=a.py:f", "b.py:f"], "--script and 'b.py:f', which stands for it, are given"),
        (["place", "--workload=dense_small", "a.py:f"], "--workload and --script are given"),
        (["place", "--workload=dense_small", "--args=x"], "--args=x is given without a script"),
        (["train", "a.py:f"], "train takes flags only"),
    ],
)
def test_words_that_do_not_belong(
    argv: list[str], expected: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [f"--out={tmp_path / 'out'}", "--cluster=k40x2"] if argv[0] == "place" else []
    assert run([*argv, *out]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.medium
def test_as_a_process_json_is_all_of_standard_output(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script.write_text(
        _SCRIPT + 'import os\nos.system("echo printed by a child")\nos.write(1, b"by the system\\n")\n'
    )
    flags = [
        "--cluster=k40x2",
        "--method=single",
        "--budget_evaluations=4",
        f"--out={tmp_path / 'out'}",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tf_placer", "place", f"{script}:step", *flags],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=pathlib.Path(__file__).parents[4],
    )
    found = json.loads(done.stdout)
    assert found["workload"] == "step"
    assert json.loads((tmp_path / "out" / "summary.json").read_text()).items() <= found.items()
    assert str(tmp_path / "out" / "placement.json") in found["files"]
    for text in ("printed by the script [] my_script", "printed by a child", "by the system"):
        assert text in done.stderr
