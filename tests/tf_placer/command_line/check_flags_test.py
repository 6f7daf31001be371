"""First command lines: what is wrong with one is told in one line, with a remedy, before TensorFlow is loaded.

All are run in a process of their own, which says what it has loaded; never by the clock.
"""

import json
import shlex
import zipfile
from typing import Any

import pytest

from tests.own_process import python
from tf_placer.__main__ import COMMANDS
from tf_placer.base.method_spec import Role
from tf_placer.search import methods
from tf_placer.workloads import known as known_workloads
from tf_placer.workloads import registry

_LIGHT = ("-m", "tests.tf_placer.command_line.light_program")
_ON = "--cluster=k40x2 --out=o"
_TOWERS = "place --workload=two_towers"
_GRAPH_DEF = b"\x0a\x0a\x0a\x01x\x12\x05Const"  # a node "x"; no TensorFlow is loaded to write it
_SAVED_MODEL = b"\x08\x01\x12\x0e\x12\x0c" + _GRAPH_DEF

# Command line -> what its only line of errors says.
WRONG = {
    "": None,
    "plcae": "unknown command 'plcae'; did you mean 'place'",
    "PLACE": "did you mean 'place'?",
    "two_towers": "unknown command 'two_towers'; ",
    "--workload=two_towers --cluster=local": "unknown command '--workload=two_towers'; ",
    # All that is missing at once.
    "place": "place needs --workload, FILE.py:NAME, --saved_model, --meta_graph or --graph, and --cluster (A preset",
    "place --cluster=k40x2": "or --graph, and --out (Folder",
    "compare --workload=two_towers": "compare needs --cluster (A preset",
    "measure": "measure needs --workload, FILE.py:NAME, --saved_model or --meta_graph, and --placement (",
    "profile": "; for example: tf-placer profile --workload=two_towers",
    "explain": "explain needs --op or --layer, and --plan (",
    "explain --plan=g.json": "explain needs --op or --layer; for example",
    "train": "train needs --method (How to search, or the method to teach; `methods` lists them), and --workloads (",
    "completion": "completion needs --shell",
    # Flags that there are not, or that cannot be.
    f"{_TOWERS} {_ON} --sead=1": "place has no flag --sead; did you mean '--seed'",
    f"{_TOWERS} {_ON} --budget=10": "did you mean '--budget_s'",
    f"place --saved-model=model {_ON}": "did you mean '--saved_model'?",
    f"{_TOWERS} {_ON} --json=maybe": "--json is 'maybe'; give True or False",
    f"{_TOWERS} {_ON} --budget_s=10s": "--budget_s is '10s'; give a finite number above 0",
    f"{_TOWERS} --cluster=k40x2 --out": "Missing value for flag --out",
    f"{_TOWERS} {_ON} --seed={2**31}": "--seed is '2147483648'",
    f"{_TOWERS} --saved_model=model {_ON}": "--workload and --saved_model are given; give one of them",
    f"{_TOWERS} --args=f {_ON}": "--args is given without --script; give both",
    "explain --plan=g.json --op=x --layer=y": "--op and --layer are given; give one of them",
    # Names.
    f"place --workload=Two-Towers {_ON}": "did you mean 'two_towers'?",
    f"{_TOWERS} {_ON} --method=HDP": "no method is called 'HDP'; did you mean 'hdp'?",
    f"compare --workload=two_towers {_ON} --methods=single,hpd": "did you mean 'hdp'?",
    "train --method=gone --workloads=two_towers --clusters=k40x2 --out=x": "did you mean 'go'?",
    "train --method=go --workloads=two_towrs --clusters=k40x2 --out=x": "did you mean 'two_towers'?",
    "train --method=go --workloads=two_towers --clusters=k40x3 --out=x": "--clusters=k40x3: unknown cluster preset",
    f"{_TOWERS} --out=o --cluster=k40x2,": "did you mean 'k40x2'",
    f"{_TOWERS} --out=o --cluster=K40X2": "did you mean 'k40x2'?",
    f"{_TOWERS} --out=o --cluster=Local": "did you mean 'local'?",
    f"{_TOWERS} --out=o --cluster=gpu": "did you mean 'local', this machine's GPUs",
    f"{_TOWERS} --out=o --cluster=GPU:0": "did you mean 'local', this machine's GPUs",
    f"{_TOWERS} --out=o --cluster=/device:GPU:0": "did you mean 'local', this machine's GPUs",
    f"{_TOWERS} --out=o --cluster=localhost": "did you mean 'local', this machine's GPUs",
    f"{_TOWERS} --out=o --cluster=local:many": "write local:2",
    f"{_TOWERS} --out=o --cluster=box": "did you mean the file box.toml?",
    f"{_TOWERS} --out=o --cluster=box.toml": "--cluster=box.toml: 0 devices",
    f"{_TOWERS} --out=o --cluster=folder/box.toml": "cannot read the cluster file",
    # Words that stand for a program.
    f"place two_towers {_ON}": "two_towers names no function of a script; write FILE.py:NAME",
    f"place model.py {_ON}": "model.py names no function of a script; write FILE.py:NAME",
    f"place folder:f {_ON}": "there is no module 'folder'",
    f"place nowhere.py:f {_ON}": "nowhere.py:f: no such file",
    f"place model.py:train-step {_ON}": "names no function of a script",
    f"place :train_step {_ON}": "names no function of a script",
    f"place nowhere.h5:model {_ON}": "nowhere.h5:model: there is no module 'nowhere'",
    f"place ./notes.txt:f {_ON}": "notes.txt is no Python script",
    f"place notes.txt:f {_ON}": "notes.txt is no Python script",
    f"place no_such_module:f {_ON}": "there is no module 'no_such_module'",
    f"place no_such_package.module:f {_ON}": "there is no module 'no_such_package'",
    f"place tf_placer.place {_ON}": "names no function of a script",
    f"place a b {_ON}": "place takes one word beside flags, got 'b' too",
    f"place --script=a.py:f b.py:f {_ON}": "--script and 'b.py:f', which stands for it, are given",
    f"{_TOWERS} a.py:f {_ON}": "--workload and --script are given",
    "train a.py:f": "train takes flags only",
    f"place ./:f {_ON}": "that is a folder",
    f"place .:f {_ON}": "is no script and no module",
    "methods hdp": "methods takes flags only, got 'hdp'",
    "completion tcsh": "give one of bash, zsh, fish",
    # Flags that do not go together.
    f"{_TOWERS} {_ON} --plan=p.json --pin=a=GPU:0": "--plan and --pin are given",
    f"{_TOWERS} {_ON} --complete_plan": "--complete_plan is given without --plan",
    f"place --graph=g.json {_ON} --costs=analytic": "--graph and --costs are given",
    f"place --graph=g.json {_ON} --parts=2": "--graph and --parts are given",
    f"place --graph=g.json {_ON} --fuse": "--graph and --fuse are given",
    f"{_TOWERS} {_ON} --input_shape=x:1": "--input_shape and --workload are given",
    f"{_TOWERS} {_ON} --robust --objective=memory": "--robust and --objective are given",
    f"{_TOWERS} {_ON} --order=auto --robust": "--robust and --order are given",
    f"{_TOWERS} {_ON} --order=auto --objective=memory": "--order and --objective are given",
    f"{_TOWERS} {_ON} --order=auto --plan=p.json": "--order and --plan are given",
    f"{_TOWERS} --cluster=local:1 --out=o --robust": "--robust is for described ones",
    f"{_TOWERS} {_ON} --fuse --objective=memory": "--fuse and --objective are given",
    f"{_TOWERS} {_ON} --fuse --by=layer": "--fuse and --by are given",
    "place --graph=g.json --cluster=local --out=o": "--cluster=local has live devices, and --graph is for described",
    "measure --workload=two_towers --cluster=k40x2 --placement=p.json": "only described; measure on --cluster=local",
    "profile --workload=two_towers --cluster=k40x2": "only described; profile on --cluster=local",
    f"{_TOWERS} {_ON} --memory_limit=10GB": "write it like GPU:0=10GB",
    f"{_TOWERS} {_ON} --memory_limit=GPU:7=1GB": "--memory_limit",
    # Files and folders.
    f"place --saved_model=frozen {_ON}": "it is a folder whose saved_model.pb is a GraphDef; give --meta_graph=frozen/",
    f"place --meta_graph=model.keras {_ON}": "--meta_graph=model.keras: it is a Keras model; export it",
    f"{_TOWERS} {_ON} --plan=model": "--plan=model: it is the folder of a SavedModel; give --saved_model=model",
    f"{_TOWERS} {_ON} --settings=g.pb": "--settings=g.pb: it is a GraphDef; give --meta_graph=g.pb",
    f"place --saved_model=nowhere {_ON}": "cannot read nowhere/saved_model.pb",
    f"place --meta_graph=folder --fetches=x {_ON}": "--meta_graph=folder: that is a folder; give the file of a",
    f"place --meta_graph=g.pb {_ON}": "--meta_graph is given without --fetches; give both",
    f"place --graph=folder {_ON}": "--graph=folder: that is a folder",
    f"{_TOWERS} {_ON} --plan=nowhere": "--plan=nowhere: no such file; give the placement.json of a run",
    f"{_TOWERS} {_ON} --settings=nowhere": "--settings=nowhere: no such file",
    f"{_TOWERS} {_ON} --weights=folder": "--weights=folder: that is a folder",
    f"{_TOWERS} --cluster=k40x2 --out=notes.txt": "notes.txt is a file; give another folder",
    "measure --workload=two_towers --placement=folder": "--placement=folder: that is a folder",
    "explain --plan=nowhere --op=x": "--plan=nowhere: no such file",
    **{
        f"{command} --graph=g.json --plan=p.json": f"{command} needs a program, and a graph that was profiled"
        for command in ("measure", "explain", "profile")
    },
    "workloads --name": "did you mean '--names'",
    "doctor --clear=nothing": "--clear=nothing",
}
# Command line -> a line of what it prints.
RIGHT = {
    "help": "usage: tf-placer COMMAND --flag=value",
    "--help": "usage: tf-placer COMMAND --flag=value",
    "-h": "usage: tf-placer COMMAND --flag=value",
    "--version": "tf_placer ",
    "-V": "tf_placer ",
    "place --help": "tf-placer place: find a placement",
    "place -h": "tf-placer place: find a placement",
    "place help": "tf-placer place: find a placement",
    "place --help place": "tf-placer place: find a placement",
    "help place": "tf-placer place: find a placement",
    f"place --cluster=nowhere {_ON} --help": "tf-placer place: find a placement",
    **{f"{name} --help": f"tf-placer {name}: {command.help}" for name, command in COMMANDS.items()},
    "clusters": "k40x2",
    "workloads": "two_towers ",
    "workloads --names": "two_towers",
    "methods": "memetic: ",
    "completion bash": "# bash completion of tf-placer",
    "complete place --clus": "--cluster=",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Command line -> what it ended with; and under "left", what all of them left in their folder."""
    folder = tmp_path_factory.mktemp("first")
    for name in ("folder", "model", "frozen"):
        (folder / name).mkdir()
    for name in ("g.pb", "frozen/saved_model.pb"):
        (folder / name).write_bytes(_GRAPH_DEF)
    (folder / "model" / "saved_model.pb").write_bytes(_SAVED_MODEL)
    with zipfile.ZipFile(folder / "model.keras", "w") as keras_file:
        keras_file.writestr("config.json", "{}")
    (folder / "g.json").write_text('{"nodes": []}')
    (folder / "p.json").write_text('{"devices": {}}')
    (folder / "box.toml").touch()
    (folder / "notes.txt").write_text("notes\n")
    (folder / "model.py").write_text("def train_step(x):\n    return x\n\n\nstep = train_step\n_own = 3\n")
    (folder / "broken.py").write_text("def train_step(x:\n")
    before = sorted(folder.rglob("*"))
    lines = [*WRONG, *RIGHT]
    asked = tmp_path_factory.mktemp("asked") / "lines.json"
    asked.write_text(json.dumps([shlex.split(line) for line in lines]))
    done = python(*_LIGHT, str(asked), str(folder), XDG_CACHE_HOME=str(folder.parent / "cache"))
    assert done.returncode == 0, done.stderr
    found = dict(zip(lines, json.loads(done.stdout), strict=True))
    found["left"] = {"paths": sorted(set(folder.rglob("*")) - set(before))}
    return found


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_is_one_line_with_a_remedy(line, answers):
    found, expected = answers[line], WRONG[line]
    assert found["status"] == 2
    if expected is None:  # nothing at all was typed
        assert found["errors"] == "" and found["output"].startswith("usage: ")
        return
    assert found["output"] == ""
    assert len(found["errors"].splitlines()) == 1 and found["errors"].startswith("tf-placer: ")
    assert expected in found["errors"]


@pytest.mark.parametrize("line", RIGHT)
def test_what_needs_no_tensorflow_is_answered(line, answers):
    found = answers[line]
    assert (found["status"], found["errors"]) == (0, "")
    assert any(text.startswith(RIGHT[line]) for text in found["output"].splitlines()), found["output"]


def test_none_of_it_loads_tensorflow_or_leaves_anything(answers):
    assert [line for line, found in answers.items() if line != "left" and found["loaded"]] == []
    assert answers["left"]["paths"] == []


@pytest.mark.medium
def test_what_is_right_loads_tensorflow(tmp_path):
    # The test above passes where nothing is ever seen as loaded; this one shows that it is.
    asked = tmp_path / "lines.json"
    asked.write_text(json.dumps([["explain", "--plan=p.json", "--op=x"]]))
    (tmp_path / "p.json").write_text("{}")
    [found] = json.loads(python(*_LIGHT, str(asked), str(tmp_path)).stdout)
    assert found["status"] == 2 and {"tensorflow", "sonnet"} <= set(found["loaded"])


def test_names_that_are_known_without_tensorflow_are_those_of_the_tables():
    assert set(known_workloads.built_in()) == set(registry._BUILT_IN)
    assert [row["name"] for row in methods.descriptions()] == list(methods.BUILT_IN)
    for role in (Role.REFERENCE, Role.CONTROL, Role.PLAIN, Role.LEAD, Role.DEFAULT):
        assert [spec.name for spec in methods.having(role)] == [getattr(methods, role.name)]


def test_what_was_registered_is_known(monkeypatch):
    monkeypatch.setattr(registry, "_TABLE", {**registry._TABLE, "mine": registry.find("dense_small")})
    monkeypatch.setattr(methods, "_METHODS", {**methods._METHODS, "mine": methods.find("single")})
    known_workloads.check_name("mine")
    methods.check_name("mine")
    assert "mine" in known_workloads.names() and "mine" in methods.names()


def test_descriptions_of_methods_that_ship_are_those_of_the_table():
    shipped = json.loads(methods.DESCRIPTIONS.read_text(encoding="utf8"))
    rows = [json.dumps(methods.about(spec.name)) for spec in map(methods.find, methods.BUILT_IN)]
    assert shipped == [json.loads(row) for row in rows], "write them anew: [\n" + ",\n".join(rows) + "\n]\n"
