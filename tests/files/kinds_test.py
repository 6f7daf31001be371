"""The bytes of a file tell its kind, whatever its name: it is taken, or one line says what it is and what takes it."""

import gzip
import io
import json
import pathlib
import re
import shutil
import zipfile

import h5py
import keras
import numpy as np
import pytest
import rich.console
import tensorflow as tf
from google.protobuf import message, text_format
from tensorflow.core.protobuf import saved_model_pb2

from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.base.file_kinds import kind_of
from tf_placer.command_line.source import Source
from tf_placer.graph.item import Item
from tf_placer.graph_file.read import read_graph_file

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


@pytest.mark.medium
def test_a_graph_under_the_name_of_a_saved_model_is_placed(contents, tmp_path):
    file, out = put(tmp_path, "model/saved_model.pb", contents["graph_def"]), tmp_path / "out"
    flags = [f"--meta_graph={file}", "--fetches=y:0", "--cluster=k40x2", "--budget_evaluations=2"]
    console = rich.console.Console(file=io.StringIO())
    assert run(["place", *flags, "--method=single", f"--out={out}"], console) == 0
    placed = tf.compat.v1.GraphDef.FromString((out / "placed_meta_graph.pb").read_bytes())
    assert any(node.device for node in placed.node)
