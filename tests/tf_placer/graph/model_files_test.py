"""Protocol buffers in files: what a file holds is told by its content, and written as it was."""

import pathlib

import pytest
import tensorflow as tf
from google.protobuf import text_format

from tf_placer.base.arguments import InputError
from tf_placer.graph.read_graph import read_meta_graph_file, read_saved_model


@pytest.fixture
def meta_graph() -> tf.compat.v1.MetaGraphDef:
    with tf.Graph().as_default():
        tf.identity(tf.constant([1.0, 2.0]), name="y")
        return tf.compat.v1.train.export_meta_graph()


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_graph_is_read_and_written_as_it_was(
    is_bare: bool, is_text: bool, meta_graph: tf.compat.v1.MetaGraphDef, tmp_path: pathlib.Path
) -> None:
    proto = meta_graph.graph_def if is_bare else meta_graph
    content = text_format.MessageToString(proto).encode() if is_text else proto.SerializeToString()
    (tmp_path / "graph").write_bytes(content)
    file = read_meta_graph_file(tmp_path / "graph", "graph")
    assert (file.is_bare, file.is_text) == (is_bare, is_text)
    assert file.meta_graph.graph_def == meta_graph.graph_def
    (tmp_path / "again").write_bytes(file.content())
    assert read_meta_graph_file(tmp_path / "again", "again") == file


def test_what_tensorflow_writes_by_default(tmp_path: pathlib.Path) -> None:
    with tf.Graph().as_default() as graph:
        tf.identity(tf.constant(1.0), name="y")
        tf.io.write_graph(graph, str(tmp_path), "graph.pbtxt")
    file = read_meta_graph_file(tmp_path / "graph.pbtxt", "graph")
    assert [node.name for node in file.meta_graph.graph_def.node] == ["Const", "y"]


def test_a_fault_in_a_text_is_told_with_its_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "graph.pbtxt").write_text('node {\n  name: "x"\n  op: Const\n}\n')
    with pytest.raises(
        InputError, match=r"graph: it is no .* binary nor text \(3:.*Const.*\); give the file of one"
    ):
        read_meta_graph_file(tmp_path / "graph.pbtxt", "graph")


class Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([2], name="x")])
    def double(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": 2.0 * x}


def test_a_set_of_tags_is_taken_exactly(tmp_path: pathlib.Path) -> None:
    module = Doubling()
    tf.saved_model.save(module, str(tmp_path), signatures=module.double)
    proto = read_saved_model(tmp_path).copy().proto
    other = proto.meta_graphs.add()
    other.CopyFrom(proto.meta_graphs[0])
    other.meta_info_def.tags[:] = ["tpu", "serve"]
    proto.meta_graphs.reverse()
    (tmp_path / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert list(read_saved_model(tmp_path).meta_graph.meta_info_def.tags) == ["serve"]
    assert list(read_saved_model(tmp_path, ["serve", "tpu"]).meta_graph.meta_info_def.tags) == [
        "tpu",
        "serve",
    ]
    with pytest.raises(InputError, match=r"no graph tagged \{\}; it has \{serve, tpu\}, \{serve\}; give one"):
        read_saved_model(tmp_path, [])


def test_a_model_without_signatures_tells_its_functions(tmp_path: pathlib.Path) -> None:
    tf.saved_model.save(Doubling(), str(tmp_path), signatures={})
    with pytest.raises(
        InputError, match=r"without signatures; place a function of it \(it has double\) from a script"
    ):
        read_saved_model(tmp_path).signature("serving_default")
