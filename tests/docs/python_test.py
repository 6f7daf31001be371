"""docs/python.md names all that is public; its blocks, the cells of docs/keras.md and all snippets of pages run."""

import ast
import dataclasses
import json
import os
import pathlib
import re
import stat
import sys

import keras
import pytest
import tensorflow as tf

import tf_placer
from tests.docs.pages import blocks, pages, printed_by, read, table_rows
from tf_placer.automatic.config import AutoPlaceConfig

PAGE = pathlib.Path("docs") / "python.md"
SCRIPT = """
import keras
import tensorflow as tf

import tf_placer

keras.utils.set_random_seed(0)
weights = [tf.Variable(tf.random.normal([8, 8])) for _ in range(3)]
example_args = (tf.TensorSpec([4, 8]),)


@tf.function
def train_step(x):
    for weight in weights:
        x = tf.tanh(x @ weight)
    weights[0].assign_sub(0.01 * tf.ones([8, 8]))
    return tf.reduce_mean(x, axis=1)


@tf_placer.auto_place(cluster="local:2", budget_s=1)
@tf.function
def wrapped(x):
    return tf.tanh(x @ weights[0]) @ weights[1]


model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse", jit_compile=False)
model_args = (tf.TensorSpec([None, 8]), tf.TensorSpec([None, 1]))
network = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])

if __name__ == "__main__":
    print(train_step(tf.ones([4, 8])))
    model.fit(tf.ones([16, 8]), tf.ones([16, 1]), batch_size=8, epochs=2, verbose=0)
"""
# What a user does with what a snippet gives; each fails unless that runs by the plan.
RUNS_BY_PLAN = """
assert {name}.placement.device_names.keys() and not {name}._told, {name}._told
"""
USES = {
    "train_step": "train_step(tf_tensor([4, 8]))" + RUNS_BY_PLAN.format(name="train_step"),
    "wrapped": "wrapped(tf_tensor([4, 8]))" + RUNS_BY_PLAN.format(name="wrapped"),
    "network": "network(tf_tensor([4, 8]))" + RUNS_BY_PLAN.format(name="network"),
    "model": "model.fit(tf_tensor([16, 8]), tf_tensor([16, 1]), batch_size=8, verbose=0)"
    + RUNS_BY_PLAN.format(name="model.train_step"),
    "": "assert model.signatures['serving_default'](tf_tensor([5, 8]))",
}


@pytest.mark.slow
def test_the_notebook_runs(root, tmp_path):
    cells = json.loads(read(root / "docs" / "tour.ipynb"))["cells"]
    script = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    printed = printed_by([sys.executable, "-c", script], root, tmp_path, 240, CUDA_VISIBLE_DEVICES="")
    assert "train_step is placed" in printed and (tmp_path / "report.html").stat().st_size > 0


@pytest.mark.slow
def test_the_blocks_run(root, tmp_path):
    # In a process of its own: logical devices are made before TensorFlow's first op.
    script = "\n".join(block.text for block in blocks(root / PAGE, "python") if not block.note)
    (tmp_path / "page.py").write_text(script)
    printed = printed_by([sys.executable, "page.py"], root, tmp_path, 240, CUDA_VISIBLE_DEVICES="")
    assert "train_step on logical2" in printed
    assert "ms a step; nothing is below" in printed


def test_blocks_of_all_pages_use_names_that_there_are(root):
    for block in (block for page in pages(root) for block in blocks(page, "python")):
        used = [
            node.attr
            for node in ast.walk(ast.parse(block.text))
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tf_placer"
        ]
        assert [name for name in used if name not in tf_placer.__all__] == []


def test_every_public_name_is_on_the_page(root):
    text = read(root / PAGE)
    assert [name for name in tf_placer.__all__ if name not in text] == []


def test_the_page_has_the_settings_of_auto_place(root):
    rows = table_rows(root / PAGE)
    first = next(i for i, row in enumerate(rows) if row[0] == "setting") + 1
    fields = {field.name: field.default for field in dataclasses.fields(AutoPlaceConfig)}
    listed = {row[0].strip("`"): row[1].strip("`") for row in rows[first : first + len(fields)]}
    assert listed.keys() == fields.keys()
    for name, default in fields.items():
        if default is not dataclasses.MISSING:
            assert listed[name] == repr(default).replace("'", '"'), name


KERAS_PAGE = pathlib.Path("docs") / "keras.md"
EXAMPLE = pathlib.Path("experiments") / "examples" / "keras_on_two_devices.py"
DEVICES = re.compile(r"^DEVICES = .*$", re.MULTILINE)

# Two devices of one process, which need no profiling; the search is short.
LOGICAL = """
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""


@pytest.fixture(scope="module")
def page(root: pathlib.Path) -> str:
    return "\n".join(block.text for block in blocks(root / KERAS_PAGE, "python"))


def test_the_cells_are_the_examples(root, page):
    example = (root / EXAMPLE).read_text()
    cells = re.split(r"^# %% .*$", example, flags=re.MULTILINE)[1:]
    assert [DEVICES.sub("", cell).split() for cell in cells] == [
        DEVICES.sub("", block.text).split() for block in blocks(root / KERAS_PAGE, "python")
    ]
    assert DEVICES.findall(example) == ['DEVICES = "local:2"']


def trained(script: str, root: pathlib.Path, folder: pathlib.Path, timeout_s: float) -> str:
    """What a script prints that leaves a report."""
    printed = printed_by([sys.executable, "-c", script], root, folder, timeout_s, CUDA_VISIBLE_DEVICES="")
    assert (folder / "report.html").stat().st_size > 0
    return printed


@pytest.mark.slow
def test_the_cells_run(root, page, tmp_path):
    script = LOGICAL + DEVICES.sub("DEVICES = tf_placer.Cluster.logical(2)", page)
    script = script.replace('"budget_s": 20', '"budget_s": 2')
    assert "train_step on logical2" in trained(script, root, tmp_path, 240)


@pytest.mark.slow
def test_the_example_runs_on_two_workers(root, tmp_path):
    assert "train_step on local" in trained((root / EXAMPLE).read_text(), root, tmp_path, 400)


@pytest.fixture(scope="module")
def folder(root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a script, a SavedModel, a MetaGraphDef, a cluster file, and the command ``tf-placer``."""
    folder = tmp_path_factory.mktemp("a user's folder")
    (folder / "my_script.py").write_text(SCRIPT)
    layers = [keras.Input((8,), name="x"), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)]
    keras.Sequential(layers).export(str(folder / "model"), verbose=False)
    with tf.Graph().as_default() as graph:
        tf.nn.relu(tf.compat.v1.placeholder(tf.float32, [4, 8], name="x") @ tf.ones([8, 2]), name="y")
        tf.compat.v1.train.export_meta_graph(str(folder / "graph.meta"), graph=graph)
    command = folder / "tf-placer"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tf_placer "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return folder


def run(command: list[str] | str, root: pathlib.Path, folder: pathlib.Path, home: pathlib.Path) -> str:
    path, cache = f"{home}:{os.environ['PATH']}", str(home / "cache")
    return printed_by(command, root, folder, 300, CUDA_VISIBLE_DEVICES="", PATH=path, XDG_CACHE_HOME=cache)


def steps_of(page: pathlib.Path) -> list[dict[str, str]]:
    data = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf8"), re.DOTALL)
    assert data is not None
    [section] = json.loads(data[1])["sections"]
    return section["apply"]


PLACED = {
    "function": ("my_script.py:train_step", "train_step", 4),
    "wrapped": ("my_script.py:wrapped --parts=2", "wrapped", 3),
    "keras": ("my_script.py:model --batch_size=8", "model", 4),
    "network": ("my_script.py:network --batch_size=4", "network", 3),
    "saved_model": ("--saved_model=model", "", 3),
    "meta_graph": ("--meta_graph=graph.meta --fetches=y:0", None, 3),
    "workload": ("--workload=dense_small", None, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["logical:2", "local:2"])
@pytest.mark.parametrize("kind", PLACED)
def test_a_page_of_place(root, folder, kind, cluster):
    asked, name, count = PLACED[kind]
    if cluster == "local:2" and kind in ("wrapped", "network"):
        pytest.skip("its snippets differ by the script's kind, not by the devices")
    out = f"{kind} {cluster}".replace(":", " ")
    budget = "--budget_s=4" if cluster == "local:2" else "--budget_evaluations=40 --method=random"
    run(f"tf-placer place {asked} --cluster={cluster} {budget} --out='{out}'", root, folder, folder)
    page = folder / out / "report.html"
    snippets = [step["code"] for step in steps_of(page) if step["code"]]
    assert len(snippets) == count
    for code in snippets:
        if code.startswith("tf-placer"):
            printed = run(code, root, page.parent, folder)
            assert " run " not in code.partition("--")[0] or f"runs by {page.parent}" in printed
            continue
        use = "" if name is None else "\ntf_tensor = __import__('tensorflow').ones\n" + USES[name]
        run([sys.executable, "-c", code + use], root, page.parent, folder)
