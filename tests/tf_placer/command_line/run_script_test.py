"""``run``: the script is the user's own, whatever it prints and ends with, and mistakes are one line."""

import json
import pathlib
import re

import pytest

from tests.own_process import python
from tf_placer.__main__ import run
from tf_placer.rewrite.plug_in import DISABLE, LOADED_BY, PREBUILT

_LIGHT = """
import sys
print(sys.argv, __name__, __file__, sys.path[0])
import light_module
sys.exit(int(sys.argv[1]))
"""
# The same numbers wherever ops are.
_TRAINS = """
import keras
import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
keras.utils.set_random_seed(0)
features = keras.Input((16,))
ends = [keras.layers.Dense(32, kind)(features) for kind in ("relu", "tanh")]
model = keras.Model(features, keras.layers.Dense(1)(keras.layers.concatenate(ends)))
model.compile("adam", "mse")
x = np.random.default_rng(0).standard_normal((320, 16)).astype("float32")
example_args = (x[:32], x[:32, :1])
if __name__ == "__main__":
    fitted = model.fit(x, x[:, :1], batch_size=32, epochs=2, shuffle=False, verbose=0)
    print([loss.hex() for loss in fitted.history["loss"]], np.random.uniform())
    print(sorted({variable.value.device[-5:] for variable in model.variables}))
"""
# Unit of each op of the script's training step.
_UNITS = """
import tf_placer
from tf_placer.command_line.script import Script
from tf_placer.command_line.source import script_item

item = script_item(Script.named("trains.py:model"), None, 32)
print(tf_placer.build_problem(item, tf_placer.Cluster.logical(2)).unit_of_op.tolist())
"""
_IS_COMPILED = """
import keras
import numpy as np

class Compiled(keras.Sequential):
    def _resolve_auto_jit_compile(self):
        return True

model = Compiled([keras.Input((4,)), keras.layers.Dense(1)], name="opaque")
model.compile("sgd", "mse")
print(model.jit_compile)
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """With scripts; the working folder, with a cache of its own."""
    for name, text in (("light.py", _LIGHT), ("trains.py", _TRAINS), ("compiled.py", _IS_COMPILED)):
        (tmp_path / name).write_text(text)
    (tmp_path / "light_module.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(DISABLE, raising=False)
    return tmp_path


def lines(text: str) -> list[str]:
    """What this program says, without what TensorFlow logs."""
    return [line for line in text.splitlines() if line.startswith("tf-placer: ")]


def test_the_script_is_run_as_python_runs_it(folder, capfd):
    assert run(["run", "light.py", "3", "", "--cluster=mine", "--help"]) == 3
    out, err = capfd.readouterr()
    words = ["light.py", "3", "", "--cluster=mine", "--help"]
    assert out == f"{words} __main__ {folder / 'light.py'} {folder}\n"
    assert err == ""


def test_it_can_be_switched_off(folder, capfd, monkeypatch):
    monkeypatch.setenv(DISABLE, "1")
    assert run(["run", "light.py", "0"]) == 0
    assert lines(capfd.readouterr().err) == ["tf-placer: TF_PLACER_DISABLE=1: light.py runs as it is"]


def test_a_script_in_which_nothing_is_watched_says_so(folder, capfd):
    assert run(["run", "light.py", "0"]) == 0
    assert capfd.readouterr().err == "tf-placer: nothing is placed: light.py does not load TensorFlow\n"


@pytest.mark.slow
def test_a_session_of_tensorflow_1_is_not_watched(folder, capfd):
    (folder / "session.py").write_text(
        "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\nprint(tf.Session().run(tf.constant(2)))\n"
    )
    assert run(["run", "session.py"]) == 0
    out, err = capfd.readouterr()
    assert out == "2\n"
    assert lines(err) == ["tf-placer: nothing is placed: session.py calls no tf.function"]


def test_an_error_of_the_script_is_told_as_python_tells_it(folder, capfd):
    (folder / "fails.py").write_text("def f():\n    raise ValueError('mine')\n\n\nf()\n")
    assert run(["run", "fails.py"]) == 1
    error = capfd.readouterr().err
    assert error.startswith(
        f'Traceback (most recent call last):\n  File "{folder}/fails.py", line 5, in <module>'
    )
    assert error.endswith("ValueError: mine\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], r"--program=nowhere\.py: no such file; give a Python script"),
        (["."], r"--program=\.: that is a folder; give a Python script"),
        (["broken.py"], r"--program=broken\.py is no Python script \(.*\); give one that python runs"),
        (
            ["--plan=nowhere.json", "light.py"],
            r"--plan=nowhere\.json: no such file; give the placement\.json",
        ),
        (["--plan=broken.py", "light.py"], r"broken\.py is not JSON .*; give a placement\.json"),
        (
            ["--plan=parts.json", "light.py"],
            r"--plan=parts\.json has a batch of 4 in 2 parts; give one of the whole batch",
        ),
        (["--cluster=k40x2", "light.py"], r"cluster 'k40x2' is only described; run on --cluster=local"),
        (["--cluster=logical:none", "light.py"], r"--cluster=logical:none: .*; write logical:2, say"),
        ([], r"run needs --program .*; for example: tf-placer run"),
    ],
)
def test_a_mistake_is_one_line(words, message, folder, capfd):
    (folder / "broken.py").write_text("def")
    split = {"fingerprint": 64 * "0", "batch": 4, "parts": 2, "batch_statistics": "whole"}
    plan = {"schema_version": 1, "fingerprint": 64 * "1", "devices": {"x": "/device:CPU:0"}, "split": split}
    (folder / "parts.json").write_text(json.dumps(plan))
    assert run(["run", *words]) == 2
    out, err = capfd.readouterr()
    assert out == "" and re.fullmatch(f"tf-placer: {message}.*\n", err), err


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (PREBUILT, "other.so", r"other\.so is built for TensorFlow 1\.2\.3, and 2\.\S+ is installed; unset"),
        (PREBUILT, "nowhere.so", r"TF_PLACER_PLUG_IN_LIBRARY is nowhere\.so, which is no file; unset it"),
        (LOADED_BY, "other.so", r"TF_PLUGGABLE_DEVICE_LIBRARY_PATH is other\.so, .*; unset it"),
    ],
)
def test_a_wrong_plug_in_is_one_line(variable, value, message, folder, capfd, monkeypatch):
    (folder / "other.so").write_bytes(b"tf_placer plug-in for TensorFlow 1.2.3;")
    monkeypatch.setenv(variable, value)
    assert run(["run", "light.py", "0"]) == 2
    out, err = capfd.readouterr()
    assert out == "" and re.fullmatch(f"tf-placer: {message}.*\n", err), err


@pytest.mark.slow
def test_a_script_runs_by_a_plan_and_computes_the_same(folder, capfd, monkeypatch):
    words = [
        "--cluster=logical:2", "--parts=1", "--budget_evaluations=8", "--write=method", "--method=random",
    ]  # fmt: skip
    place = ["-m", "tf_placer", "place", "trains.py:model", *words, "--order=heft_rank", "--out=plan"]
    # Processes of their own load the script, which says how many threads TensorFlow has.
    python(*place, cwd=folder).check_returncode()
    placement = json.loads((folder / "plan" / "placement.json").read_text())
    units = json.loads(python("-c", _UNITS, cwd=folder).stdout)
    for position, name in enumerate(placement["devices"]):
        placement["devices"][name] = f"/job:localhost/replica:0/task:0/device:CPU:{int(units[position] % 2)}"
    assert len(units) == len(placement["devices"])
    (folder / "plan.json").write_text(json.dumps(placement))
    capfd.readouterr()
    monkeypatch.setenv(DISABLE, "1")
    assert run(["run", "trains.py"]) == 0
    as_it_is = capfd.readouterr().out.splitlines()
    monkeypatch.delenv(DISABLE)
    assert run(["run", "--cluster=logical:2", "--plan=plan.json", "trains.py"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[0] == as_it_is[0]
    assert (as_it_is[1], out.splitlines()[1]) == ("['CPU:0']", "['CPU:0', 'CPU:1']")
    assert lines(err) == [f"tf-placer: one_step_on_data runs by {folder / 'plan.json'}"]


@pytest.mark.slow
def test_a_plan_for_another_program_is_told_at_the_end(folder, capfd):
    plan = {"schema_version": 1, "fingerprint": 64 * "0", "devices": {"x": "/device:CPU:0"}}
    (folder / "plan.json").write_text(json.dumps(plan))
    assert run(["run", "--cluster=logical:2", "--plan=plan.json", "trains.py"]) == 2
    out, err = capfd.readouterr()
    assert out.count("\n") == 2  # the script ran as it is
    first, line = lines(err)
    assert first.startswith("tf-placer: one_step_on_data runs as it is: ")
    assert re.search(r"plan\.json: it is a plan for another program .*; make one with tf-placer place", line)


@pytest.mark.slow
def test_without_a_plan_one_is_found(folder, capfd):
    script = folder / "costly.py"
    script.write_text(
        "import time\nimport tensorflow as tf\nv = tf.Variable(tf.ones([1024, 1024]) / 1024)\n"
        "@tf.function\ndef step(x):\n    v.assign(v @ x @ x)\n    return tf.reduce_sum(v)\n"
        "for _ in range(8):\n    loss = step(tf.ones([1024, 1024]) / 1024)\nprint(float(loss))\n"
    )
    assert run(["run", "--cluster=logical:2", "--budget_s=1", "costly.py"]) == 0
    out, err = capfd.readouterr()
    assert float(out) == pytest.approx(1024, rel=1e-3)
    assert re.search(r"step takes \S+ ms a step: finding a plan for it", err)
    assert lines(err)[-1] == "tf-placer: step runs by its plan"


@pytest.mark.slow
def test_keras_steps_are_opened(folder, capfd):
    assert run(["run", "compiled.py"]) == 0
    out, err = capfd.readouterr()
    assert out == "False\n"
    opened, end = lines(err)
    assert "model opaque: jit_compile='auto'" in opened
    assert end == "tf-placer: nothing is placed: compiled.py calls no tf.function"
