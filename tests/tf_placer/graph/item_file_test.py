"""Items and protocol buffers in files: equal in every field, and told in one line where they are damaged."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes, read_array_file
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import Status
from tf_placer.graph.item import Item, can_be_kept, item_bytes, read_item_file
from tf_placer.graph.program import fingerprint
from tf_placer.graph.read_graph import read_meta_graph_file, read_saved_model
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.transform.split.split_batch import split


def through_a_file(item, folder):
    (folder / "item").write_bytes(item_bytes(item))
    return read_item_file(folder / "item")


def assert_equal(item: Item, other: Item) -> None:
    for field in dataclasses.fields(Item):
        if field.name not in ("index", "feeds", "variables"):
            assert getattr(item, field.name) == getattr(other, field.name), field.name
    for field in dataclasses.fields(item.index):
        np.testing.assert_array_equal(getattr(item.index, field.name), getattr(other.index, field.name))
    assert other.index.graph_def is other.graph_def
    for one, two in zip((*item.feeds, *item.variables), (*other.feeds, *other.variables), strict=True):
        assert type(one) is type(two)
        for field in dataclasses.fields(one):
            a, b = getattr(one, field.name), getattr(two, field.name)
            if field.name == "value":
                assert a.dtype == b.dtype and a.shape == b.shape
                assert (a == b).all() if a.dtype.hasobject else a.tobytes() == b.tobytes()
            else:
                assert a == b and type(a) is type(b), field.name
    assert item.fingerprint == other.fingerprint
    assert item.estimated_sizes == other.estimated_sizes
    assert other.runs_standalone


@pytest.fixture(scope="module")
def small():
    function, args = workloads.function("branches_small", branches=2, depth=2, width=8, batch=4)
    return Item.from_function(function, *args, name="small")


def test_a_training_step_is_the_same(small, tmp_path):
    kept = through_a_file(small, tmp_path)
    assert_equal(small, kept)
    digests = [analytic_problem(item, Cluster.preset("k40x2")).digest() for item in (small, kept)]
    assert digests[0] == digests[1]


def test_values_of_every_kind_are_the_same(tmp_path):
    held = [
        tf.Variable(tf.cast([1.5, -0.0, 2.0], tf.bfloat16)),
        tf.Variable(tf.zeros([3, 4])),
        tf.Variable([float("nan")] * 3),
        tf.Variable([-0.0, 0.0]),
        tf.Variable(7, dtype=tf.int64),
        tf.Variable([True, False]),
        tf.Variable(tf.zeros([0, 5], tf.float64)),
        tf.Variable(tf.constant([1 + 2j], tf.complex64)),
        tf.Variable(["a", "bc"]),
    ]

    @tf.function
    def step(x, words):
        with tf.device("CPU:0"):
            found = tf.boolean_mask(x, x > 0)  # its size is an estimate
        return [found, tf.strings.join([words, held[-1]]), *[v.read_value() for v in held]]

    item = Item.from_function(step, tf.constant([1.0, -1.0]), tf.constant(["ä", ""]))
    assert item.requested_devices and item.estimated_sizes
    kept = through_a_file(item, tmp_path)
    assert_equal(item, kept)
    assert np.signbit(next(v.value for v in kept.variables if v.shape == (2,) and v.dtype == tf.float32)[0])


def test_stages_are_kept_and_a_file_from_before_has_none(small, tmp_path):
    staged = dataclasses.replace(small, stages=("dense_1/", "dense"))
    assert_equal(staged, through_a_file(staged, tmp_path))
    header, arrays = read_array_file(tmp_path / "item", "a tf_placer item", 1, "")
    del header["stages"]
    (tmp_path / "before").write_bytes(array_file_bytes("a tf_placer item", 1, header, arrays))
    assert_equal(small, read_item_file(tmp_path / "before"))


def test_how_the_batch_is_in_parts_is_kept(small, tmp_path):
    in_parts = split(small, 2)
    assert in_parts.splitting.parts == 2
    assert_equal(in_parts, through_a_file(in_parts, tmp_path))


def test_an_op_is_of_the_first_stage_that_is_found_in_its_name(small, tmp_path):
    stage = dict(
        zip(
            small.index.names,
            dataclasses.replace(small, stages=("dense_1/", "dense")).stage_of_op.tolist(),
            strict=True,
        )
    )
    for name, of in stage.items():
        assert of == (0 if "dense_1/" in name else 1 if "dense" in name else -1), name
    assert set(stage.values()) == {-1, 0, 1}
    assert set(small.stage_of_op.tolist()) == {-1}


def test_equal_elements_take_the_room_of_one(tmp_path):
    def size(start):
        variable = tf.Variable(start)
        return len(item_bytes(Item.from_function(tf.function(lambda: variable + 1.0))))

    # 100,000 elements of 4 bytes, or one.
    assert 390_000 < size(tf.random.normal([100_000])) - size(tf.ones([100_000])) < 410_000


def test_it_runs_on_workers_as_the_traced_one_does(small, tmp_path):
    kept = through_a_file(small, tmp_path)
    problem = analytic_problem(kept, Cluster.local(cores=1))
    with RuntimeEvaluator(kept, problem) as evaluator:
        measured = evaluator.evaluate(np.zeros((1, problem.num_units), np.int32))
    assert measured.status.tolist() == [Status.OK]


def test_it_computes_the_same(small, tmp_path):
    def results(item):
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(item.graph_def, name="")
            feeds = {f"{feed.node}:0": feed.value for feed in item.feeds}
            with tf.compat.v1.Session() as session:
                for v in item.variables:
                    handle = graph.get_tensor_by_name(f"{v.node}:0")
                    value = tf.compat.v1.placeholder(v.dtype, v.shape)
                    session.run(tf.raw_ops.AssignVariableOp(resource=handle, value=value), {value: v.value})
                effects = [graph.get_operation_by_name(name) for name in item.control_outputs]
                return [session.run([list(item.fetches), effects], feeds)[0][0] for _ in range(3)]

    losses = results(small)
    assert losses[0] != losses[2]
    np.testing.assert_allclose(results(through_a_file(small, tmp_path)), losses, rtol=1e-5)


def test_what_needs_this_process_is_not_kept():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4]), 0)
    of_table = Item.from_function(tf.function(lambda x: table.lookup(x)), tf.constant([1, 2]))
    of_python = Item.from_function(
        tf.function(lambda x: tf.numpy_function(lambda y: y, [x], tf.float32)), tf.ones(2)
    )
    for item in (of_table, of_python):
        assert not can_be_kept(item)
        with pytest.raises(InputError, match=r"cannot be in a file: .*; trace it in every process"):
            item_bytes(item)


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({"outputs": []}, {}),
        ({"outputs": [[3]]}, {}),
        ({"variables": 3}, {}),
        ({"name": 3}, {}),
        ({"fetches": [3]}, {}),
        ({"requested_devices": [1]}, {}),
        ({}, {"graph_def": np.frombuffer(b"\xff\xff", np.uint8)}),
        ({}, {"variables_0": np.zeros(3, np.uint8)}),
        ({}, {"feeds_0": np.zeros(8, np.uint8)}),
    ],
)
def test_what_is_no_item_is_told(small, tmp_path, header, arrays):
    path = tmp_path / "item"
    path.write_bytes(item_bytes(small))
    good_header, good_arrays = read_array_file(path, "a tf_placer item", 1, "")
    path.write_bytes(array_file_bytes("a tf_placer item", 1, good_header | header, good_arrays | arrays))
    with pytest.raises(
        InputError, match=r"item lacks a part of an item .*; trace the program again$"
    ) as told:
        read_item_file(path)
    assert "\n" not in str(told.value)


@pytest.fixture
def meta_graph() -> tf.compat.v1.MetaGraphDef:
    with tf.Graph().as_default():
        tf.identity(tf.constant([1.0, 2.0]), name="y")
        return tf.compat.v1.train.export_meta_graph()


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_graph_is_read_and_written_as_it_was(is_bare, is_text, meta_graph, tmp_path):
    proto = meta_graph.graph_def if is_bare else meta_graph
    content = text_format.MessageToString(proto).encode() if is_text else proto.SerializeToString()
    (tmp_path / "graph").write_bytes(content)
    file = read_meta_graph_file(tmp_path / "graph", "graph")
    assert (file.is_bare, file.is_text) == (is_bare, is_text)
    assert file.meta_graph.graph_def == meta_graph.graph_def
    (tmp_path / "again").write_bytes(file.content())
    assert read_meta_graph_file(tmp_path / "again", "again") == file


def test_what_tensorflow_writes_by_default(tmp_path):
    with tf.Graph().as_default() as graph:
        tf.identity(tf.constant(1.0), name="y")
        tf.io.write_graph(graph, str(tmp_path), "graph.pbtxt")
    file = read_meta_graph_file(tmp_path / "graph.pbtxt", "graph")
    assert [node.name for node in file.meta_graph.graph_def.node] == ["Const", "y"]


def test_a_fault_in_a_text_is_told_with_its_line(tmp_path):
    (tmp_path / "graph.pbtxt").write_text('node {\n  name: "x"\n  op: Const\n}\n')
    with pytest.raises(
        InputError, match=r"graph: it is no .* binary nor text \(3:.*Const.*\); give the file of one"
    ):
        read_meta_graph_file(tmp_path / "graph.pbtxt", "graph")


class Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([2], name="x")])
    def double(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": 2.0 * x}


def test_a_set_of_tags_is_taken_exactly(tmp_path):
    module = Doubling()
    tf.saved_model.save(module, str(tmp_path), signatures=module.double)
    proto = read_saved_model(tmp_path).proto
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


def test_a_model_without_signatures_tells_its_functions(tmp_path):
    tf.saved_model.save(Doubling(), str(tmp_path), signatures={})
    with pytest.raises(
        InputError, match=r"without signatures; place a function of it \(it has double\) from a script"
    ):
        read_saved_model(tmp_path).signature("serving_default")


@pytest.fixture
def graph_def(program_of):
    return program_of("a = Const(); b = Const(); x = SubV2(a, b); y = Neg(x, ^b) ->  | ").graph_def


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ("x.attr['_note'].s, x.attr['shared_name'].s, x.device = b'7', b's', '/device:GPU:0'", False),
        ("a.name, x.input[0] = 'other', 'other:0'", False),
        ("x.input[:] = ['b', 'a']", True),
        ("del y.input[1:]", True),
        ("y.op = 'Exp'", True),
        ("a.attr['value'].tensor.float_val[:] = [2.5]", True),
        ("y.attr['_class'].list.s.append(b'loc:@x')", True),
    ],
)
def test_a_change_counts(graph_def, change, counts):
    before = fingerprint(graph_def, ["y:0"], ["x"])
    exec(change, {node.name: node for node in graph_def.node})
    assert (fingerprint(graph_def, ["y:0"], ["x"]) != before) == counts


def test_fetches_and_side_effects_count(graph_def):
    ends = [(["y:0"], ["x"]), (["x:0"], ["x"]), (["y:0"], ["y"]), (["y:0"], [])]
    digests = {fingerprint(graph_def, fetches, effects) for fetches, effects in ends}
    assert len(digests) == 4
    # TensorFlow writes output 0 or leaves it out.
    assert fingerprint(graph_def, ["y"], ["x"]) in digests
