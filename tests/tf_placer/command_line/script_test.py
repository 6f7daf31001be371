"""A function in a script is placed as the command line's other programs are; what is wrong with one is one line."""

import json
import pathlib
import sys
from collections.abc import Iterator

import pytest

from tests.own_process import python
from tests.refused import refused
from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.command_line.script import Script
from tf_placer.command_line.source import Source, kind_of, script_item

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
    return [feed.shape for feed in script_item(Script.named(f"{script}:{name}"), args, 32).feeds]


@pytest.mark.medium
def test_arguments_are_what_the_script_says(script):
    assert shapes(script, "step") == [(32, 8)]  # the signature's open size is the batch size
    assert shapes(script, "Holder.inner") == [(32, 8)]
    assert shapes(script, "concrete") == [(32, 8)]
    assert shapes(script, "bare") == [(5,)]
    assert shapes(script, "plain") == [(2, 3), (32, 3)]
    assert shapes(script, "nothing") == []
    assert shapes(script, "placed", "one") == [(3,)]
    assert shapes(script, "bare", "one") == [(3,)]  # what is asked for comes first
    assert shapes(script, "model") == [(32, 8)]


def test_a_compiled_model_is_placed_with_its_whole_training_step(script):
    item = script_item(Script.named(f"{script}:trained"), "batch", 32)
    assert [feed.shape for feed in item.feeds] == [(7, 8), (7,)]
    trained = {variable.node for variable in item.variables if "kernel" in variable.node}
    assert len(trained) == 3, "a kernel and its two moments of Adam"
    assert "SparseSoftmaxCrossEntropyWithLogits" in item.index.op_types


def test_a_script_runs_once(script):
    source = Source(script=f"{script}:trained", args="batch")
    assert source.item() is source.item()


def test_example_args_stand_for_all_functions(script):
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
def test_what_cannot_be_placed_is_one_line(name, args, expected, script):
    with refused(expected):
        shapes(script, name, args)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import tensorflow\nimport no_such_thing", "line 2 of .*: ModuleNotFoundError: No module named"),
        ("x = 1\ndef f(:\n", "line 2 of my_script.py: SyntaxError: invalid syntax; it must run"),
        ("def g():\n  raise LookupError('a\\nb')\ng()\n", "line 2 of my_script.py: LookupError: .*a.*b"),
        ("import sys\nsys.exit(3)", r"it ends the process \(exit 3\); put that behind"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.parse_args()\n1 / 0",
            "line 4 of .*ZeroDivisionError",
        ),
    ],
)
def test_a_script_that_fails_is_told_with_its_line(text, expected, script):
    script.write_text(text)
    with pytest.raises(InputError, match=expected):
        shapes(script, "f")


def test_a_module_is_looked_for_in_the_working_folder(script, monkeypatch):
    monkeypatch.chdir(script.parent)
    item = script_item(Script.named("my_script:step"), None, 4)
    assert item.name == "step" and item.feeds[0].shape == (4, 8)
    with pytest.raises(InputError, match="there is no module 'nowhere'"):
        script_item(Script.named("nowhere.at_all:step"), None, 4)


def test_a_script_named_as_a_module_that_is_there_does_not_replace_it(tmp_path):
    import tensorflow as tf

    file = tmp_path / "tensorflow.py"
    file.write_text("def f(): return 1.0\n")
    found = Script.named(f"{file}:f")
    assert found.imported().f() == 1.0
    assert sys.modules["tensorflow"] is tf
    sys.modules.pop(found.module)
    sys.path.remove(str(tmp_path))


def test_nothing_is_left_beside_a_script(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "left_alone.py"
    file.write_text("def f(): return 1.0\n")
    assert Script.named(f"{file}:f").imported().f() == 1.0
    assert list(tmp_path.iterdir()) == [file]
    sys.modules.pop("left_alone")
    sys.path.remove(str(tmp_path))


def test_a_plan_remembers_the_script(script, tmp_path, capsys):
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


@pytest.mark.medium
def test_as_a_process_json_is_all_of_standard_output(script, tmp_path):
    script.write_text(
        _SCRIPT + 'import os\nos.system("echo printed by a child")\nos.write(1, b"by the system\\n")\n'
    )
    flags = ["--cluster=k40x2", "--method=single", "--budget_evaluations=4", "--json"]
    done = python("-m", "tf_placer", "place", f"{script}:step", *flags, f"--out={tmp_path / 'out'}")
    found = json.loads(done.stdout)
    assert found["workload"] == "step"
    assert json.loads((tmp_path / "out" / "summary.json").read_text()).items() <= found.items()
    assert str(tmp_path / "out" / "placement.json") in found["files"]
    for text in ("printed by the script [] my_script", "printed by a child", "by the system"):
        assert text in done.stderr


_STEP = """
import numpy as np
import tensorflow as tf
import tf_placer
w = tf.Variable(tf.ones([4, 3]))

{decorators}
def train_step(x, y, *, scale=1.0):
    print("called by the script" if tf.executing_eagerly() else "traced")
    w.assign_sub(scale * tf.ones([4, 3]) * tf.reduce_sum((x @ w - y) ** 2))
    return tf.reduce_sum([(lambda: x)()[0, 0], y[0, 0]])

def main():
    x, y = np.ones([6, 4], np.float32), tf.zeros([6, 3])
    {call}
    print("trained to the end")
"""
_MAIN = '\nif __name__ == "__main__":\n    main()\n'
_X, _Y = (6, 4), (6, 3)


def fed(script: pathlib.Path, text: str, name: str = "train_step") -> list[tuple[int, ...]]:
    """Shapes of what is fed to a function of a script with this text, which is imported anew."""
    sys.modules.pop(script.stem, None)
    script.write_text(text)
    return shapes(script, name)


@pytest.mark.parametrize("decorators", ["@tf.function", "@tf_placer.auto_place()\n@tf.function", ""])
@pytest.mark.parametrize("begin", ["main()", _MAIN])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("train_step(x, y)", [_X, _Y]),
        ("train_step(y=y, x=x)", [_X, _Y]),
        ("train_step(x, y, scale=tf.constant(2.0))", [_X, _Y, ()]),
        ("train_step(x, y, scale=0.5)", [_X, _Y]),  # a Python number is part of the program
        ("for a, b in tf.data.Dataset.from_tensors((x, y)).repeat(): train_step(a, b)", [_X, _Y]),
        ("\n    while True:\n        try: train_step(x, y)\n        except Exception: pass", [_X, _Y]),
    ],
)
def test_the_first_call_in_a_script_gives_the_arguments(decorators, begin, call, expected, script, capsys):
    assert sorted(fed(script, _STEP.format(decorators=decorators, call=call) + begin)) == sorted(expected)
    printed = capsys.readouterr().out
    assert "trained to the end" not in printed and "called by the script" not in printed


def test_the_script_of_the_readme(script, tmp_path, capsys):
    readme = (pathlib.Path(__file__).parents[3] / "README.md").read_text()
    script.write_text(readme.split("```python\n")[1].split("```")[0])
    flags = ["--cluster=logical:2", "--method=single", "--budget_evaluations=2", "--parts=1"]
    assert run(["place", f"{script}:train_step", *flags, f"--out={tmp_path / 'out'}"]) == 0
    assert "train_step on logical2: " in capsys.readouterr().out


def test_a_method_is_awaited_on_its_own_object(script):
    text = """
import tensorflow as tf
class Trainer:
    {decorator}
    def step(self, x, *more, **named): return tf.add_n([x, *more, *named.values()])
one, two = Trainer(), Trainer()
two.step(tf.ones([3]))
one.step(tf.ones([5]), tf.ones([5]), z=tf.zeros([5]))
"""
    for decorator in ("", "@tf.function"):
        assert fed(script, text.format(decorator=decorator), "one.step") == [(5,), (5,), (5,)]


def test_a_decorator_of_the_script_is_looked_through(script):
    text = """
import functools
import tensorflow as tf
def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs): return function(*args, **kwargs)
    return wrapper
class Trainer:
    @timed
    def step(self, x): return tf.sin(x)
trainer = Trainer()
@timed
def step(x): return trainer.step(x[:2])
step(tf.ones([5]))
"""
    assert fed(script, text, "step") == [(5,)]
    assert fed(script, text, "trainer.step") == [(2,)]


def test_a_call_in_a_graph_gives_shapes_where_they_are_known(script):
    text = """
import tensorflow as tf
@tf.function
def inner(x): return tf.sin(x)
@tf.function{signature}
def outer(x): return inner(x + 1.0)
outer(tf.ones([7]))
"""
    assert fed(script, text.format(signature=""), "inner") == [(7,)]
    with refused(r"inner is called in a graph, where .* set inner_args"):
        fed(script, text.format(signature="(input_signature=[tf.TensorSpec([None])])"), "inner")


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ("model.fit(x, y, batch_size=8, verbose=0)", [(8, 5), (8,)]),
        (
            "model.fit(tf.data.Dataset.from_tensors((x, y)), epochs=3, verbose=0, shuffle=False)",
            [(20, 5), (20,)],
        ),
        ("model.train_on_batch(x[:3], y[:3])", [(3, 5), (3,)]),
    ],
)
def test_the_first_batch_of_fit_is_that_of_a_model(eagerly, train, expected, script):
    text = f"""
import keras
import numpy as np
import tensorflow as tf
x, y = np.ones([20, 5], np.float32), np.zeros([20], np.int32)
if __name__ == "__main__":
    model = keras.Sequential([keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly={eagerly})
    {train}
    raise AssertionError("trained to the end")
"""
    assert fed(script, text, "model") == expected
    assert kind_of(Script.named(f"{script}:model")) == "", "no other program can import it"


def test_a_model_that_fits_in_main_can_be_imported(script):
    text = """
import keras
import numpy as np
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
def main():
    model(np.ones([2, 4]))  # no step of training
    model.fit(np.ones([20, 4]), np.ones([20, 1]), batch_size=10, verbose=0)
"""
    assert fed(script, text + _MAIN, "model") == [(10, 4), (10, 1)]
    assert kind_of(Script.named(f"{script}:model")) == "model"


def test_a_thread_ends_at_its_call(script, capfd):
    text = _STEP.format(decorators="@tf.function", call="train_step(x, y)")
    text += "import threading\nthread = threading.Thread(target=main)\nthread.start()\nthread.join()\n"
    assert fed(script, text) == [_X, _Y]
    printed = capfd.readouterr()
    assert "called" not in printed.out and "Traceback" not in printed.err


@pytest.mark.parametrize("name", ["train_step", "other_step"])
def test_what_is_decorated_is_not_placed_by_a_script_that_is_read(name, script):
    text = """
import tensorflow as tf
import tf_placer
@tf_placer.auto_place(strict=True)
@tf.function(jit_compile=True)
def train_step(x): return tf.sin(x)
@tf.function
def other_step(x): return tf.cos(x)
other_step(train_step(tf.ones([3])))
"""
    assert fed(script, text, name) == [(3,)]


@pytest.mark.parametrize(
    "stated", ["train_step_args = tf.ones([2, 4]), tf.ones([2, 3])", "example_args = None"]
)
def test_what_a_script_states_comes_before_its_calls(stated, script, capsys):
    text = _STEP.format(decorators="@tf.function", call="train_step(x, y)")
    stated = stated.replace("None", "lambda: (tf.ones([2, 4]), tf.ones([2, 3]))")
    assert fed(script, f"{text}main()\n{stated}") == [(2, 4), (2, 3)]
    assert "trained to the end" in capsys.readouterr().out  # the names may come last
    assert fed(script, f"{text}{stated}{_MAIN}") == [(2, 4), (2, 3)]
    assert "trained to the end" not in capsys.readouterr().out
    signature = "@tf.function(input_signature=[tf.TensorSpec([None, n]) for n in (4, 3)])"
    text = _STEP.replace(", *, scale=1.0", "").replace("scale *", "")
    assert fed(script, text.format(decorators=signature, call="train_step(x, y)") + "main()") == [
        (32, 4),
        (32, 3),
    ]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            "",
            "the arguments of train_step are not known; give it an input_signature, .* or call it in the script",
        ),
        ("1 / 0", "line 15 of my_script.py: ZeroDivisionError: .* runs as __main__ up to its first call"),
        ("raise SystemExit(3)", r"ends the process \(exit 3\); it runs as __main__ .* set train_step_args"),
        ("raise SystemExit", "the arguments of train_step are not known"),
        ("train_step(x)", "line 15 of my_script.py: TypeError: .*missing .*required"),
    ],
)
def test_a_script_that_makes_no_call_is_one_line(call, expected, script):
    for decorators in ("@tf.function", ""):
        with refused(expected):
            fed(script, _STEP.format(decorators=decorators, call=call) + _MAIN)


def test_a_module_of_a_package_ends_at_its_call_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    folder = tmp_path / "package_of_steps"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "sizes.py").write_text("SIZE = 9\n")
    text = "import tensorflow as tf\nfrom .sizes import SIZE\n@tf.function\ndef step(x): return tf.sin(x)\n"
    call = "step(tf.ones([SIZE]))\nraise AssertionError\n"
    for name, end in (("imported", call), ("main", f'if __name__ == "__main__":\n    {call}')):
        (folder / f"{name}.py").write_text(
            text + end.replace("\nraise", "\n    raise" if name == "main" else "\nraise")
        )
        item = script_item(Script.named(f"package_of_steps.{name}:step"), None, 4)
        assert [feed.shape for feed in item.feeds] == [(9,)]


def test_a_misspelt_name_runs_nothing_more(script, capsys):
    text = _STEP.format(decorators="@tf.function", call="train_step(x, y)") + _MAIN
    with pytest.raises(InputError, match="did you mean 'train_step'"):
        fed(script, text, "trainstep")
    assert capsys.readouterr().out == ""
