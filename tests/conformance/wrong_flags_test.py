"""Whatever is wrong with a flag of a command ends with status 2 and one line that names it and says what to give.

Wrong numbers and words follow from the type of an option in ``Options``; wrong texts depend on its name: a new option
needs a row in ``OF_NAME``.
"""

import io
import pathlib
import re
import typing
from collections.abc import Iterator
from typing import Literal

import pytest
import rich.console
import tensorflow as tf

import tf_placer
from tf_placer import workloads
from tf_placer.__main__ import COMMANDS, run
from tf_placer.base.arguments import Text, describe
from tf_placer.planning.request import Texts, kind_of, options_of

_REMEDY = re.compile(r"; \w|give |did you mean|known: |needs --")

# Of texts and lists, and of numbers without a range of their own: values that cannot be. FOLDER and FILE are there.
OF_NAME = {
    "workload": ("dense_smal",),
    "script": ("nowhere", "nowhere.py:f", "nowhere:f", "FOLDER:f", "FILE:f"),
    "args": ("nowhere",),
    "program": ("nowhere.py", "FOLDER", "FILE"),
    "saved_model": ("nowhere", "FOLDER", "FILE"),
    "signature": ("train", "serving_default,train"),
    "tags": ("train", "serve,train"),
    "input_shape": ("a", ":1", "x:a", "x:0", "x:1,,2", "x:7,7,7,7,7", "nowhere:1"),
    "op_library": ("nowhere.so", "FOLDER", "FILE"),
    "meta_graph": ("nowhere", "FOLDER", "FILE"),
    "fetches": ("nowhere", "nowhere:0"),
    "clear": ("nothing", "plans,nothing"),
    "facts": ("dense_smal", "dense_small,nowhere"),
    "graph": ("nowhere", "FOLDER", "FILE"),
    "workloads": ("dense_smal", "dense_small,nowhere"),
    "held_out": ("dense_smal", "dense_small"),
    "clusters": ("k40x3", "nowhere.toml", "k40x2,local:1"),
    "weights": ("nowhere", "FOLDER"),
    "cluster": (
        "k40x3", "nowhere.toml", "FOLDER/", "local:two", "local:0", "local:1000000", "local:", "logical:0",
    ),
    "memory_limit": ("a", "CPU:0=", "CPU:0=5 apples", "CPU:0=0", "GPU:7=1GB", "CPU:0=9999TB"),
    "out": ("FILE", "FILE/out"),
    "pin": ("a", "=", "(=/device:CPU:0", "a=GPU::0", "nowhere=/device:CPU:0"),
    "method": ("hpd", "all"),
    "set": ("a", "=1", "num_group=64", "hpd.num_groups=64", "list_schedule.depth=1"),
    "settings": ("nowhere", "FOLDER", "FILE"),
    "methods": ("hpd", "single,hpd", "single random"),
    "fleet": ("nowhere", "local:", "local:0", "local:two", "local:65", "a:0", "a:b", "127.0.0.1:1"),
    "plan": ("nowhere", "FOLDER", "FILE"),
    "placement": ("nowhere", "FOLDER", "FILE"),
    "op": ("nowhere",),
    "layer": ("nowhere",),
    "budget_s": ("0", "-1", "inf"),
    "budget_evaluations": ("0", "-1"),
}  # fmt: skip
# What a message may name instead of the flag.
_TOLD_BY = {
    "saved_model": "saved_model|file.txt",
    "script": "script|nowhere|folder|file.txt",
    "fetches": "fetches|nowhere",
    "facts": "facts|workload",
    "workloads": "workload",
    "held_out": "held_out|workload|taught",
    "method": "method",
    "methods": "method",
    "pin": "pin",
    "plan": "plan|file.txt|nowhere|folder",
    "placement": "placement|file.txt",
    "signature": "signature",
    "tags": "tagged|tags",
    "input_shape": "input_shape|input",
}


EVERY_FLAG = [(command, option.name) for command in COMMANDS for option in options_of(command)]


def wrong_values(name: str) -> Iterator[str]:
    """Texts that a flag must refuse: by its type and limits, and by its name."""
    kind = kind_of(name)
    if kind is bool:
        yield "maybe"
        return
    yield ""
    if typing.get_origin(kind) is Literal:
        yield "nothing"
    elif kind not in (Text, Texts):
        yield from ("a", "1.5.1", "nan", "-1")
        yield from () if "number" in describe(kind).replace("whole number", "") else ("1.5",)
    yield from OF_NAME[name] if kind in (Text, Texts) else OF_NAME.get(name, ())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """With a plan of a workload, a SavedModel and a graph."""
    folder = tmp_path_factory.mktemp("flags")
    (folder / "file.txt").write_text("no plan, no model, no graph")
    (folder / "folder").mkdir()
    (folder / "functions.py").write_text("def f(x):\n    return x\n\n\nf_args = 1.0\n")
    item = workloads.build("dense_small")
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset("k40x2"))
    placement = tf_placer.Placement(problem, problem.everything_on(2))
    placement.save(folder / "placement.json", {"workload": "dense_small", "cluster": "k40x2"})
    (folder / "graph.pb").write_bytes(item.graph_def.SerializeToString())
    module = tf.Module()
    module.f = tf.function(lambda x: {"y": x * 2.0}, [tf.TensorSpec([2], name="x")])
    tf.saved_model.save(module, str(folder / "model"), signatures=module.f)
    return folder


def good_flags(command: str, about: str, folder: pathlib.Path) -> dict[str, str]:
    """Flags of a command that is right but for one flag, and makes that one count."""
    source = {"workload": "dense_small"}
    if about in ("saved_model", "signature", "tags"):
        source = {"saved_model": str(folder / "model")}
    elif about in ("meta_graph", "fetches", "input_shape"):
        source = {"meta_graph": str(folder / "graph.pb"), "fetches": "x:0"}
    elif about == "args":
        source = {"script": str(folder / "functions.py:f")}
    elif about in ("graph", "script"):
        source = {}
    plan = {"plan": str(folder / "placement.json")}
    return {
        "place": {**source, "cluster": "k40x2", "method": "single", "out": str(folder / "out")},
        "compare": {**source, "cluster": "k40x2", "methods": "single", "out": str(folder / "out")},
        "measure": {**source, "cluster": "local:1", "placement": str(folder / "placement.json")},
        "profile": {**source, "cluster": "local:1"},
        "memory": {**source, "cluster": "k40x2"},
        "explain": {**source, **plan} | ({} if about == "layer" else {"op": "x"}),
        "train": {
            "method": "go",
            "workloads": "dense_small",
            "clusters": "k40x2",
            "out": str(folder / "weights.npz"),
        },
        "run": {"program": str(folder / "functions.py")} if about != "program" else {},
        "completion": {"shell": "bash"},
    }.get(command, {})


@pytest.mark.parametrize(("command", "name"), EVERY_FLAG)
def test_a_wrong_flag_is_one_line(command, name, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    for value in wrong_values(name):
        value = value.replace("FILE", str(folder / "file.txt")).replace("FOLDER", str(folder / "folder"))
        given = good_flags(command, name, folder) | {name: value}
        status = run([command, *(f"--{flag}={text}" for flag, text in given.items())], quiet())
        error = capsys.readouterr().err
        what = f"{command} --{name}={value}: {error}"
        assert status == 2, what
        assert len(error.splitlines()) == 1, what
        assert re.search(_TOLD_BY.get(name, name), error), what
        assert _REMEDY.search(error), what
    assert sorted(folder.rglob("*")) == before


def quiet() -> rich.console.Console:
    return rich.console.Console(file=io.StringIO(), width=200)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_flag_that_there_is_not(command, capsys):
    for name in ("sead", "clustre", "plann"):
        assert run([command, f"--{name}=1"], quiet()) == 2
        error = capsys.readouterr().err
        assert re.fullmatch(
            f"tf-placer: {command} has no flag --{name}; (did you mean|known|it takes none).*\n", error
        )


@pytest.mark.parametrize(("command", "name"), EVERY_FLAG)
def test_a_flag_without_a_value(command, name, capsys):
    if kind_of(name) is not bool and name != "clear":
        assert run([command, f"--{name}"], quiet()) == 2
        assert capsys.readouterr().err == f"tf-placer: Missing value for flag --{name}; write --flag=value\n"
