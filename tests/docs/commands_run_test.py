"""Every command line of the README and of docs/ is run, in small: small twins, few placements, files made for it."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.docs.pages import blocks, command_lines, read
from tf_placer import __main__ as command_line
from tf_placer import workloads
from tf_placer.command_line.check_flags import parse
from tf_placer.fleet.address import why_no_ray

PLAN, PLAN_HERE, PLAN_OF_SCRIPT = (
    f"{folder}/placement.json" for folder in ("plan", "plan_here", "plan_of_script")
)
# Of the pages' programs: what is run in their place. Others have a small twin of their own.
SMALLER = {
    "inception_v3": "branches_small",
    "inception_v3_small": "branches_small",
    "lstm_lm_small": "dense_small",
    "resnet50": "dense_small",
}
SCRIPT = """
import tensorflow as tf

weight = tf.Variable(tf.ones([4, 4]))


@tf.function(input_signature=[tf.TensorSpec([8, 4])])
def train_step(x):
    return weight.assign_sub(0.01 * tf.matmul(x, x, transpose_a=True))


model, batch = (lambda x: tf.nn.relu(x @ weight)), tf.ones([8, 4])
if __name__ == "__main__":
    train_step(batch)
"""


@pytest.fixture(scope="module")
def folder(root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Has what the pages' lines name: a script, a module, a SavedModel, graphs, and a plan to explain and to apply."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "my_script.py").write_text(SCRIPT)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "package").mkdir()
    (folder / "package" / "module.py").write_text(SCRIPT)
    (folder / "profiled.json").write_text(blocks(root / "docs" / "graph_file.md", "json")[0].text)
    module = tf.Module()
    module.weight = tf.Variable(tf.ones([4, 4]))
    serve = tf.function(lambda x: {"y": x @ module.weight}, input_signature=[tf.TensorSpec([None, 4])])
    tf.saved_model.save(module, str(folder / "model"), signatures={"serving_default": serve})
    with tf.Graph().as_default() as graph:
        tf.group(tf.reduce_sum(tf.ones([2, 2]), name="loss"), name="train_op")
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return folder


def lines_of(root: pathlib.Path) -> list[list[str]]:
    """Each line once; those that are made of others come after them."""
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    found = [line for page in pages for line in command_lines(read(page))]
    return [list(line) for line in dict.fromkeys(map(tuple, found)) if line[0] != "COMMAND"]


def in_small(words: list[str], number: int) -> list[str]:
    """The same line on the small twins of its workloads, with few placements, on the files that there are."""
    line = " ".join(words)
    twins = {name: f"{name}_small" for name in workloads.names() if f"{name}_small" in workloads.names()}
    for workload, twin in (twins | SMALLER).items():
        line = re.sub(rf"(?<=[=,]){workload}(?=[ ,]|$)", twin, line)
    line = re.sub(r"--facts=\S+", "--facts=two_towers", line)
    line = re.sub(r"--cluster=local(?= |$)", "--cluster=local:2", line)
    line = re.sub(r"--saved_model=\S+", "--saved_model=model", line)
    line = re.sub(r"--meta_graph=\S+", "--meta_graph=graph.pb", line)
    line = re.sub(r"--graph=\S+", "--graph=profiled.json", line)
    plan = PLAN_HERE if "--cluster=local" in line else PLAN
    plan = PLAN_OF_SCRIPT if words[0] == "run" else plan
    line = re.sub(r"--(plan|placement)=\S+", rf"--\1={plan}", line)
    line = re.sub(r" --budget_s=\S+", "", line)
    words = line.split(" ")
    if words[0] in ("place", "compare"):
        words = [word for word in words if not word.startswith("--out=")]
        words += [f"--out=out_{number}", "--budget_evaluations=32"]
    if words[0] in ("place", "compare", "run") and "--cluster=local" in line:
        words.insert(1, "--budget_s=10")  # else what is measured takes a minute
    if words[0] == "train":
        words += ["--epochs=1", "--searches=1", "--evaluations=32"]
    return words


@pytest.mark.slow
def test_every_command_line_runs(root, folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.syspath_prepend(folder)
    for cluster, plan in (("k40x2", PLAN), ("local:2", PLAN_HERE)):
        out = pathlib.Path(plan).parent
        made = f"place --workload=branches_small --cluster={cluster} --budget_evaluations=32 --out={out}"
        assert command_line.run(made.split()) == command_line.OK
    # A process of its own: the devices of this one are decided.
    place = (
        "place train.py:train_step --cluster=logical:2 --parts=1 --budget_evaluations=32 --out=plan_of_script"
    )
    command = [sys.executable, "-m", "tf_placer", *place.split()]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(root)})
    plan = json.loads(pathlib.Path(PLAN).read_text())
    op, layer = next(name for name in plan["devices"] if name.endswith("/MatMul")), "functional"
    lines = lines_of(root)
    assert {line[0] for line in lines} == command_line.COMMANDS.keys()
    for number, line in enumerate(lines):
        words = in_small(line, number)
        if why_no_ray() and any(word.startswith("--fleet=") for word in words):
            continue  # `make test-fleet` runs one with Ray
        words = [f"--op={op}" if word.startswith("--op=") else word for word in words]
        words = [f"--layer={layer}" if word.startswith("--layer=") else word for word in words]
        words = [f"--pin={op}=/device:GPU:1" if word.startswith("--pin=") else word for word in words]
        status = command_line.run(words)
        assert status == command_line.OK, f"{' '.join(words)}: {capfd.readouterr().err[-1000:]}"


def test_lines_in_small_are_lines(root):
    """The flags are there, and nothing of the pages' full size is left."""
    for number, line in enumerate(lines_of(root)):
        words = in_small(line, number)
        parse(words[0], words)
        assert not [word for word in words if "DIR" in word and not word.startswith("--out")]
        assert "--workload=inception_v3" not in words
