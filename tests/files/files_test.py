"""Small files of every format, sound and faulty, of TensorFlow 1, too: each is placed, or refused in one line."""

import dataclasses
import io
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import rich.console
import tensorflow as tf
from google.protobuf import text_format

from tf_placer.__main__ import run
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.bounds import lower_bounds
from tf_placer.rewrite.rewrite import place_meta_graph
from tf_placer.search.search import search

FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Row:
    """A file, what is given with it, and what comes of it.

    Attributes:
      file: its name in this folder, or in that of ``made_files``.
      flags: beside the file's own and ``--cluster``.
      refused: what the message has in it; "" where it is placed.
    """

    file: str
    flags: tuple[str, ...] = ()
    refused: str = ""


Y = ("--fetches=y:0",)
OF_META_GRAPHS = (
    Row("text_graph_def.pbtxt", Y),
    Row("text_graph_def.pbtxt", ("--fetches=Y",), "no node 'Y'; did you mean 'y'"),
    Row("text_graph_def.pbtxt", (*Y, "--input_shape=x:8,3")),
    Row("text_graph_def.pbtxt", (*Y, "--input_shape=x:8,4"), "[?, 3] in the graph, and [8, 4] is given"),
    Row("text_graph_def.pbtxt", (*Y, "--input_shape=x:8,3,1"), "[?, 3] in the graph, and [8, 3, 1] is given"),
    Row("text_graph_def.pbtxt", (*Y, "--input_shape=z:8,3"), "an input 'z' is given, and there is none; known: x"),
    Row("text_graph_def.pbtxt", (*Y, "--input_shape=x=8"), "--input_shape=x=8 is not possible; give an input and"),
    Row("text_graph_def.pbtxt", (*Y, "--input_shape=x:?,3", "--input_shape=x:1,3"), "is the second for 'x'"),
    Row("text_meta_graph.pbtxt", Y),
    Row("damaged_text.pbtxt", Y, 'MatMul'),
    Row("graph_def.pb", Y),
    Row("meta_graph.meta", Y),
    Row("unknown_rank.pbtxt", Y, "input 'x' has unknown rank; say its shape with --input_shape=x:"),
    Row("unknown_rank.pbtxt", (*Y, "--input_shape=x:?,3")),
    Row("unknown_rank.pbtxt", (*Y, "--input_shape=x:0:5,3")),
    Row("unknown_rank.pbtxt", (*Y, "--input_shape=x:5,4"), "Dimensions must be equal"),
    Row("unneeded_inputs.pbtxt", Y),
    Row("unneeded_inputs.pbtxt", ("--fetches=y:0,rate:0",), "input 'rate' has unknown rank; say its shape"),
    Row("unneeded_inputs.pbtxt", ("--fetches=y:0,rate:0", "--input_shape=rate:")),
    Row("unneeded_inputs.pbtxt", ("--fetches=list:0",), "input 'list' is a variant, which cannot be fed; place"),
    Row("unneeded_inputs.pbtxt", ("--fetches=handle:0",), "input 'handle' is a resource, which cannot be fed"),
    Row("unneeded_inputs.pbtxt", ("--fetches=read:0",), "variable 'open' has unknown rank, and nothing tells"),
    Row("batch_of_16.pbtxt", Y, "were taken as 32: give the --batch_size that the graph is made for"),
    Row("batch_of_16.pbtxt", (*Y, "--batch_size=16")),
    Row("batch_of_16.pbtxt", (*Y, "--input_shape=x:16,3")),
    Row("unregistered_op.pbtxt", Y, "op type 'RowsOfSomebodyElse'; give the library that registers"),
    Row("unregistered_op.pbtxt", (*Y, "--op_library=nowhere.so"), "--op_library=nowhere.so: no such file; give"),
    Row("unregistered_op.pbtxt", ("--fetches=product:0",)),
    Row("parsed_before_product.pbtxt", Y),
    Row("queue_before_product.pbtxt", Y),
    Row("text_saved_model", Y, "it is the folder of a SavedModel; give --saved_model="),
    Row("text_saved_model/saved_model.pbtxt", Y, "it is the file of a SavedModel; give its folder, --saved_model="),
)  # fmt: skip
OF_SAVED_MODELS = (
    Row("text_saved_model"),
    Row("two_sets_of_tags"),
    Row("two_sets_of_tags", ("--tags=tpu,serve",)),
    Row("two_sets_of_tags", ("--tags=gpu",), "no graph tagged {gpu}; it has {serve, tpu}, {serve}; give one of these"),
    Row("tags_of_tpu_alone", (), "it has {serve, tpu}; give one of these sets, --tags=serve,tpu"),
    Row("tags_of_tpu_alone", ("--tags=serve,tpu",)),
    Row("without_signatures", (), "was saved without signatures; place a function of it from a script"),
    Row("unknown_rank_saved_model", (), "input 'rows' has unknown rank; say its shape with --input_shape=rows:"),
    Row("unknown_rank_saved_model", ("--input_shape=rows:4,3",)),
    Row("unknown_rank_saved_model", ("--input_shape=x:4,3",)),
    Row("unknown_rank_saved_model", ("--input_shape=row:4,3",), "an input 'row' is given, and there is none"),
    Row("text_saved_model/saved_model.pbtxt", (), "it is the file of a SavedModel; give its folder"),
)  # fmt: skip
OF_PROFILED_GRAPHS = (
    Row("zero_times.json"),
    Row("zero_times_operator_graph.json"),
    Row("zero_times_pipedream.txt"),
    Row("never_on_cpu.json"),
    Row("never_anywhere.json", (), "nodes[0] may run nowhere: its latencies say never; give a time"),
    Row("piper.json", (), "nodes have TMPCs: it is a graph of Piper"),
)
ROWS = {"meta_graph": OF_META_GRAPHS, "saved_model": OF_SAVED_MODELS, "graph": OF_PROFILED_GRAPHS}


OF_TENSORFLOW_1 = ("tf1_", "ref_", "nchw_")  # tf1_graphs_test.py has these


@pytest.fixture(scope="module")
def made_files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Files that are no text."""
    folder = tmp_path_factory.mktemp("made")
    graph_def = text_format.Parse((FOLDER / "text_graph_def.pbtxt").read_text(), tf.compat.v1.GraphDef())
    (folder / "graph_def.pb").write_bytes(graph_def.SerializeToString())
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=graph_def)
    (folder / "meta_graph.meta").write_bytes(meta_graph.SerializeToString())
    return folder


@pytest.mark.parametrize(
    ("kind", "row"),
    [pytest.param(kind, row, id=" ".join([row.file, *row.flags])) for kind in ROWS for row in ROWS[kind]],
)
def test_a_file_is_placed_or_refused_in_one_line(kind, row, made_files, tmp_path, capsys):
    file = FOLDER / row.file if (FOLDER / row.file).exists() else made_files / row.file
    out = tmp_path / "out"
    given = [f"--{kind}={file}", *row.flags, "--cluster=k40x2", "--method=single", "--budget_evaluations=2"]
    status = run(["place", *given, f"--out={out}"], rich.console.Console(file=io.StringIO(), width=200))
    error = capsys.readouterr().err
    if row.refused:
        assert status == 2 and len(error.splitlines()) == 1, error
        assert row.refused in error
        assert not out.exists(), "nothing half-written"
    else:
        assert status == 0, error
        assert json.loads((out / "summary.json").read_text())["status"] == "OK"


def test_every_file_has_a_row():
    sources = {".py", ".cc", ""}
    there = {path.name for path in FOLDER.iterdir() if path.suffix not in sources and path.name != "BUILD"}
    there = {name for name in there if not name.startswith(OF_TENSORFLOW_1)}
    named = {row.file.partition("/")[0] for rows in ROWS.values() for row in rows}
    assert there <= named


def test_a_text_stays_a_text(tmp_path):
    file = FOLDER / "text_graph_def.pbtxt"
    flags = [f"--meta_graph={file}", *Y, "--cluster=k40x2", "--method=single", f"--out={tmp_path / 'out'}"]
    assert run(["place", *flags, "--budget_evaluations=2"], rich.console.Console(file=io.StringIO())) == 0
    assert not (tmp_path / "out" / "placed_meta_graph.pb").exists()
    written = (tmp_path / "out" / "placed_meta_graph.pbtxt").read_text()
    placed = text_format.Parse(written, tf.compat.v1.GraphDef())
    assert {node.device for node in placed.node} == {"/job:localhost/replica:0/task:0/device:GPU:0"}
    for node in placed.node:
        node.device = ""
    assert placed == text_format.Parse(file.read_text(), tf.compat.v1.GraphDef())


def test_a_model_in_a_text_is_exported(tmp_path):
    flags = [f"--saved_model={FOLDER / 'text_saved_model'}", "--cluster=k40x2", "--method=cpu_only"]
    assert run(["place", *flags, f"--out={tmp_path}"], rich.console.Console(file=io.StringIO())) == 0
    exported = tmp_path / "saved_model"
    assert sorted(path.name for path in exported.iterdir()) == ["assets.extra", "saved_model.pb"]
    served = tf.saved_model.load(str(exported)).signatures["serving_default"]
    # Columns 1 + 3 + 5 and 2 + 4 + 6.
    assert served(rows=tf.ones([1, 3]))["y"].numpy().tolist() == [[9.0, 12.0]]


def test_a_plan_remembers_shapes_and_tags(tmp_path):
    graph = [f"--meta_graph={FOLDER / 'unneeded_inputs.pbtxt'}", "--fetches=y:0,rate:0"]
    shapes = ["--input_shape=rate:2,2", "--input_shape=x:5,3"]
    model = [f"--saved_model={FOLDER / 'tags_of_tpu_alone'}", "--tags=serve,tpu"]
    for name, given in {"graph": [*graph, *shapes], "model": model}.items():
        out = tmp_path / name
        command = [
            "place", *given, "--cluster=k40x2", "--method=single", "--budget_evaluations=2", f"--out={out}",
        ]  # fmt: skip
        assert run(command, rich.console.Console(file=io.StringIO())) == 0
        explained = rich.console.Console(file=(text := io.StringIO()), width=200)
        assert run(["explain", f"--plan={out / 'placement.json'}", "--op=product"], explained) == 0
        assert f"(MatMul, gives [{5 if name == 'graph' else 32}, 2])" in text.getvalue()
    page = (tmp_path / "graph" / "report.html").read_text()
    assert all(f"{flag} " in page for flag in shapes), "each flag by itself, to type again"


@pytest.mark.slow
def test_an_op_of_somebody_else_is_read_and_measured(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    library = tmp_path / "rows.so"
    flags = ["-std=c++17", "-O0", "-DNDEBUG", "-fPIC", "-shared", *tf.sysconfig.get_compile_flags()]
    source = FOLDER / "rows_of_somebody_else.cc"
    subprocess.run(
        ["g++", *flags, str(source), "-o", str(library), *tf.sysconfig.get_link_flags()], check=True
    )
    for cluster in ("k40x2", "local:1"):
        command = [
            sys.executable, "-m", "tf_placer", "place", f"--op_library={library}", f"--cluster={cluster}",
        ]  # fmt: skip
        graph = [f"--meta_graph={FOLDER / 'unregistered_op.pbtxt'}", *Y, "--method=single", "--budget_s=10"]
        done = subprocess.run(
            [*command, *graph, f"--out={tmp_path / 'out'}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        summary = json.loads((tmp_path / "out" / "summary.json").read_text())
        assert summary["status"] == "OK" and (summary["measured_s"] is not None) == (cluster != "k40x2")


FILES = sorted(path.name for kind in ("tf1", "ref", "nchw") for path in FOLDER.glob(f"{kind}_*.pbtxt"))


def meta_graph_of(name: str) -> tf.compat.v1.MetaGraphDef:
    return text_format.Parse((FOLDER / name).read_text(), tf.compat.v1.MetaGraphDef())


def item_of(meta_graph: tf.compat.v1.MetaGraphDef) -> Item:
    return Item.from_meta_graph(meta_graph, meta_graph.collection_def["fetches"].node_list.value)


def test_every_kind_is_there():
    assert {name.partition("_")[0] for name in FILES} == {"tf1", "ref", "nchw"}


@pytest.mark.medium
@pytest.mark.parametrize("name", FILES)
def test_a_graph_is_placed(name):
    meta_graph = meta_graph_of(name)
    item = item_of(meta_graph)
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    result = search(problem, method="random", budget_s=0.2, seed=0)
    assert 0 < lower_bounds(problem).best_s <= result.runtime_s
    placed = place_meta_graph(meta_graph, result.placement)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(placed.graph_def, name="")
        devices = {op.name: op.device for op in graph.get_operations()}
    planned = result.placement.device_names
    written = {op: devices[op] for op in planned if op in devices}
    assert written == {op: planned[op] for op in written}
    assert len(written) > len(planned) / 2  # the rest are copies of constants, made for their readers


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("tf1_")])
def test_a_loop_is_on_one_device(name):
    item = item_of(meta_graph_of(name))
    problem = analytic_problem(item, Cluster.preset("k40x2"))
    frames = {}
    for node, unit in zip(item.graph_def.node, problem.unit_of_op, strict=True):
        if node.op == "Enter":
            frames.setdefault(node.attr["frame_name"].s, set()).add(int(unit))
    assert all(len(units) == 1 for units in frames.values())


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("nchw_")])
def test_no_plan_puts_channels_first_on_a_cpu(name):
    problem = analytic_problem(item_of(meta_graph_of(name)), Cluster.preset("k40x2"))
    cpu = problem.cluster.host
    rng = np.random.default_rng(0)
    rows = problem.legalized(rng.integers(0, problem.cluster.num_devices, (50, problem.num_units)))
    on_cpu = {problem.op_types[op] for row in rows for op in np.flatnonzero(row[problem.unit_of_op] == cpu)}
    assert "FusedBatchNormV3" in on_cpu
    assert not on_cpu & {"AvgPool", "AvgPoolGrad", "Conv2D", "Conv2DBackpropFilter", "MaxPool", "MaxPoolGrad"}
