"""Small files of every format, sound and faulty, of TensorFlow 1, too: each is placed, or refused in one line."""

import dataclasses
import gzip
import io
import json
import pathlib
import re
import shutil
import subprocess
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import message, text_format
from tensorflow.core.protobuf import saved_model_pb2

from tests.own_process import python
from tests.tf_placer.command_line.commands import command, printed_by, written
from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.base.file_kinds import kind_of
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.source import Source
from tf_placer.graph.item import Item
from tf_placer.graph_file.read import read_graph_file
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
    status, _ = command("place", *given, f"--out={out}")
    error = capsys.readouterr().err
    if row.refused:
        assert status == 2 and len(error.splitlines()) == 1, error
        assert row.refused in error
        assert not out.exists(), "nothing half-written"
    else:
        assert status == 0, error
        assert written(out)["status"] == "OK"


def test_every_file_has_a_row():
    sources = {".py", ".cc", ""}
    there = {path.name for path in FOLDER.iterdir() if path.suffix not in sources and path.name != "BUILD"}
    there = {name for name in there if not name.startswith(OF_TENSORFLOW_1)}
    named = {row.file.partition("/")[0] for rows in ROWS.values() for row in rows}
    assert there <= named


def test_a_text_stays_a_text(tmp_path):
    file = FOLDER / "text_graph_def.pbtxt"
    flags = [f"--meta_graph={file}", *Y, "--cluster=k40x2", "--method=single", f"--out={tmp_path / 'out'}"]
    printed_by("place", *flags, "--budget_evaluations=2")
    assert not (tmp_path / "out" / "placed_meta_graph.pb").exists()
    text = (tmp_path / "out" / "placed_meta_graph.pbtxt").read_text()
    placed = text_format.Parse(text, tf.compat.v1.GraphDef())
    assert {node.device for node in placed.node} == {"/job:localhost/replica:0/task:0/device:GPU:0"}
    for node in placed.node:
        node.device = ""
    assert placed == text_format.Parse(file.read_text(), tf.compat.v1.GraphDef())


def test_a_model_in_a_text_is_exported(tmp_path):
    flags = [f"--saved_model={FOLDER / 'text_saved_model'}", "--cluster=k40x2", "--method=cpu_only"]
    printed_by("place", *flags, f"--out={tmp_path}")
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
        flags = ("--cluster=k40x2", "--method=single", "--budget_evaluations=2", f"--out={out}")
        printed_by("place", *given, *flags)
        text = printed_by("explain", f"--plan={out / 'placement.json'}", "--op=product")
        assert f"(MatMul, gives [{5 if name == 'graph' else 32}, 2])" in text
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
        place = ("-m", "tf_placer", "place", f"--op_library={library}", f"--cluster={cluster}")
        graph = [f"--meta_graph={FOLDER / 'unregistered_op.pbtxt'}", *Y, "--method=single", "--budget_s=10"]
        done = python(*place, *graph, f"--out={tmp_path / 'out'}")
        assert done.returncode == 0, done.stderr
        summary = written(tmp_path / "out")
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


# What the line says of each content, and the flag that takes it; "" where none does. What nothing tells is "".
CONTENTS = {
    "saved_model": ("SavedModel", "saved_model"),
    "saved_model_text": ("SavedModel", "saved_model"),
    "saved_model_without_version": ("SavedModel", "saved_model"),
    "meta_graph": ("a MetaGraphDef", "meta_graph"),
    "meta_graph_text": ("a MetaGraphDef", "meta_graph"),
    "meta_graph_of_a_graph": ("a MetaGraphDef", "meta_graph"),
    "graph_def": ("a GraphDef", "meta_graph"),
    "graph_def_text": ("a GraphDef", "meta_graph"),
    "graph_def_text_with_comments": ("a GraphDef", "meta_graph"),
    "graph_def_from_the_library": ("a GraphDef", "meta_graph"),
    "profiled": ("a profiled graph", "graph"),
    "pipedream": ("a profiled graph", "graph"),
    "keras": ("a Keras model", ""),
    "hdf5": ("a Keras model or weights in HDF5", ""),
    "checkpoint": ("a checkpoint, which has no graph", ""),
    "plan": ("a plan; give --plan=", ""),
    "cluster": ("the file of a cluster; give --cluster=", ""),
    "onnx": ("an ONNX model", ""),
    "tflite": ("a TensorFlow Lite model", ""),
    "tfjs": ("a TensorFlow.js model", ""),
    "gzip": ("a file that gzip compressed; unpack it", ""),
    "zip_of_a_saved_model": ("a zip archive of a SavedModel; unpack it", ""),
    "empty": ("empty; write or copy it again", ""),
    "white": ("empty; write or copy it again", ""),
    "saved_model_cut": ("SavedModel that ends early", ""),
    "meta_graph_cut": ("a MetaGraphDef that ends early", ""),
    "graph_def_cut": ("a GraphDef that ends early", ""),
    "keras_cut": ("a zip archive, as a Keras model is, that ends early", ""),
    "data_of_a_checkpoint": ("", ""),
    "random": ("", ""),
    "notes": ("", ""),
}
NAMES = (
    "model", "model/saved_model.pb", "model/saved_model.pbtxt", "x.pb", "x.pbtxt", "x.meta", "x.json", "x",
)  # fmt: skip
FLAGS = ("saved_model", "meta_graph", "graph")


class Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([2, 2], name="x")])
    def double(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.identity(2.0 * x, name="y")}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Bytes of each of ``CONTENTS``, as those write them who write such files."""
    folder = tmp_path_factory.mktemp("contents")
    module = Doubling()
    tf.saved_model.save(module, str(folder / "saved"), signatures=module.double)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 2], name="x")
        tf.identity(x @ tf.eye(2), name="y")
        meta_graph = tf.compat.v1.train.export_meta_graph()
    keras.Sequential([keras.Input((2,)), keras.layers.Flatten()]).save(folder / "model.keras")
    with h5py.File(folder / "model.weights.h5", "w") as weights:
        weights.create_dataset("layers/dense/vars/0", data=np.zeros([2, 2], np.float32))
    tf.train.Checkpoint(x=tf.Variable(tf.range(64.0))).write(str(folder / "checkpoint"))
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved" / "saved_model.pb").read_bytes())
    without_version = saved_model_pb2.SavedModel(meta_graphs=saved.meta_graphs)
    graph_def = graph.as_graph_def()
    binary = graph_def.SerializeToString()
    nodes = [{"name": name, "time_ns": {"GPU": 1}} for name in "ab"]
    plan = {"schema_version": 1, "fingerprint": 64 * "0", "devices": {"x": "/device:CPU:0"}}
    keras_file = (folder / "model.keras").read_bytes()
    made = {
        "saved_model": saved.SerializeToString(),
        "saved_model_text": text(saved),
        "saved_model_without_version": without_version.SerializeToString(),
        "meta_graph": meta_graph.SerializeToString(),
        "meta_graph_text": text(meta_graph),
        "meta_graph_of_a_graph": tf.compat.v1.MetaGraphDef(graph_def=graph_def).SerializeToString(),
        "graph_def": binary,
        "graph_def_text": text(graph_def),
        "graph_def_text_with_comments": b"# node_def {\n\n  # of nothing\n" + text(graph_def),
        "graph_def_from_the_library": text(graph_def)[text(graph_def).index(b"versions") :]
        + text(graph_def)[: text(graph_def).index(b"versions")],
        "profiled": json.dumps({"edges": [], "nodes": nodes}).encode(),
        "pipedream": b"node1 -- Input0 -- forward_compute_time=1.0, backward_compute_time=1.0, "
        b"activation_size=4.0, parameter_size=0.0\n",
        "keras": keras_file,
        "hdf5": (folder / "model.weights.h5").read_bytes(),
        "checkpoint": (folder / "checkpoint.index").read_bytes(),
        "plan": json.dumps(plan).encode(),
        "cluster": b'# mine\nname = "box"\n\n[[device]]\nname = "CPU:0"\n',
        "onnx": b"\x08\x08\x12\x07pytorch\x1a\x052.0.0\x3a\x02\x12\x00",
        "tflite": b"\x1c\0\0\0TFL3\x14\0",
        "tfjs": json.dumps({"format": "graph-model", "modelTopology": {"node": []}}).encode(),
        "gzip": gzip.compress(binary),
        "zip_of_a_saved_model": archive({"m/saved_model.pb": saved.SerializeToString()}),
        "empty": b"",
        "white": b" \n\n",
        "saved_model_cut": saved.SerializeToString()[:-40],
        "meta_graph_cut": meta_graph.SerializeToString()[:-5],
        "graph_def_cut": binary[: len(binary) // 2 + 1],
        "keras_cut": keras_file[: len(keras_file) // 2],
        "data_of_a_checkpoint": (folder / "checkpoint.data-00000-of-00001").read_bytes(),
        "random": np.random.default_rng(7).bytes(4096),
        "notes": b"what is to be done\n",
    }
    assert made.keys() == CONTENTS.keys()
    return made


def text(proto: message.Message) -> bytes:
    return text_format.MessageToString(proto).encode()


def archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return made.getvalue()


def put(folder: pathlib.Path, name: str, content: bytes) -> pathlib.Path:
    """The path that is given, with the content in it or in its ``saved_model.pb``."""
    path = folder / name
    file = path / "saved_model.pb" if name == "model" else path
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return path


def read(flag: str, path: pathlib.Path) -> None:
    """Reads a program as a command does; raises InputError where it can't."""
    if flag == "graph":
        read_graph_file(path)
    elif flag == "saved_model":
        Source(saved_model=str(path)).item()
    else:
        Source(meta_graph=str(path), fetches=("y:0",)).item()


def refusal(flag: str, path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The line of ``place`` for what it does not take; nothing is written."""
    out = path.parent / "out"
    before = {file: file.stat().st_mtime_ns for file in path.parent.rglob("*")}
    fetches = ["--fetches=y:0"] if flag == "meta_graph" else []
    status = run(["place", f"--{flag}={path}", *fetches, "--cluster=k40x2", f"--out={out}"])
    line = capsys.readouterr().err
    assert status == 2 and line.startswith("tf-placer: ") and len(line.splitlines()) == 1, line
    assert {file: file.stat().st_mtime_ns for file in path.parent.rglob("*")} == before
    return line


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", CONTENTS)
def test_the_bytes_tell_and_not_the_name(content, name, flag, contents, tmp_path, capsys):
    path = put(tmp_path, name, contents[content])
    words, taker = CONTENTS[content]
    if flag == taker and path.is_dir() == (flag == "saved_model"):
        read(flag, path)
        return
    line = refusal(flag, path, capsys)
    assert words in line and (words or str(path) in line)
    for remedy, given in re.findall(r"give (?:its folder, )?--(saved_model|meta_graph|graph)=(/\S+)", line):
        assert remedy == taker
        read(remedy, pathlib.Path(given))
    if taker and not (taker == "saved_model" and name.startswith("x")):  # which has no folder yet
        assert f"--{taker}=/" in line
    if flag == "saved_model":  # the call in Python says the same
        with pytest.raises(InputError) as told:
            Item.from_saved_model(path)
        assert words in str(told.value) and "\n" not in str(told.value)


def test_folders_tell_what_is_in_them(contents, tmp_path, capsys):
    (tmp_path / "variables" / "variables").mkdir(parents=True)
    (tmp_path / "variables" / "variables" / "variables.index").write_bytes(contents["checkpoint"])
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "keras_metadata.pb").write_bytes(b"\x0a\x02\x10\x01")
    (tmp_path / "served" / "7").mkdir(parents=True)
    (tmp_path / "served" / "7" / "saved_model.pb").write_bytes(contents["saved_model"])
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "model-3.index").write_bytes(contents["checkpoint"])
    shutil.copytree(tmp_path / "steps", tmp_path / "{steps}")
    (tmp_path / "{steps}" / "model-3.meta").write_bytes(contents["meta_graph"])
    for name, words in {
        "variables": "a SavedModel without its saved_model.pb; export the model again",
        "keras": "a SavedModel without its saved_model.pb; export the model again",
        "served": f"without a saved_model.pb; give a folder in it that has one, --saved_model={tmp_path}/served/7",
        "steps": "a checkpoint, which has no graph",
        "{steps}": f"checkpoints and their graphs; give --meta_graph={tmp_path}/{{steps}}/model-3.meta",
    }.items():
        for flag in FLAGS:
            assert words in refusal(flag, tmp_path / name, capsys)


def test_no_beginning_of_a_file_is_taken_for_a_whole_one(contents, tmp_path):
    for name in ("saved_model", "meta_graph", "graph_def"):
        whole = contents[name]
        for size in range(1, len(whole), max(1, len(whole) // 50)):
            file = tmp_path / "x"
            file.write_bytes(whole[:size])
            kind = kind_of(file)
            proto = {"saved_model": saved_model_pb2.SavedModel, "meta_graph": tf.compat.v1.MetaGraphDef}
            try:
                proto.get(name, tf.compat.v1.GraphDef)().ParseFromString(whole[:size])
            except message.DecodeError:
                assert kind is None or not {*kind.flags} & {*FLAGS}


def test_bytes_without_meaning_have_no_kind(tmp_path):
    draws = np.random.default_rng(0)
    for size in (1, 2, 3, 7, 20, 100, 1000):
        for _ in range(50):
            (tmp_path / "x").write_bytes(draws.bytes(size))
            kind = kind_of(tmp_path / "x")
            assert kind is None or kind.what == "empty"
