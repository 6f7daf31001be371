"""An Item is the same program: same numbers, all shapes known, nothing hidden in calls; and so it is from a file."""

import dataclasses
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from colocation.op_facts import parse_input
from tests.own_process import python
from tests.refused import refused
from tf_placer import workloads
from tf_placer.base.files import array_file_bytes, read_array_file
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item, can_be_kept, item_bytes, read_item_file
from tf_placer.graph.program import fingerprint
from tf_placer.graph.read_graph import read_meta_graph_file, read_saved_model
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.transform.split.split_batch import split
from tf_placer.workloads.spec import keras_step


@pytest.fixture(scope="module")
def item() -> Item:
    return workloads.build("dense_small")


@pytest.mark.medium
def test_fingerprint_is_equal_in_another_process():
    names = ("dense_small", "lstm_lm_small", "transformer_small")
    program = f"""
from tf_placer import Item, workloads
for function, args in map(workloads.function, {names}):  # and not what an earlier process kept
    print(Item.from_function(function, *args).fingerprint)
"""
    child = python("-c", program, PYTHONHASHSEED="12345")
    assert child.stdout.split() == [workloads.build(name).fingerprint for name in names], child.stderr


def test_fingerprint_is_equal_after_other_models():
    def layers_and_item():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dropout(0.5)])
        step = keras_step(model, (), "adam")
        item = Item.from_function(step.function, tf.zeros((2, 4)), tf.zeros(2, tf.int32))
        return [layer.name for layer in model.layers], item

    first_layers, first = layers_and_item()
    second_layers, second = layers_and_item()
    # Keras counts layers per process, so the names differ and the test is not empty.
    assert first_layers != second_layers
    assert first.index.names != second.index.names
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize("overrides", [{"width": 31}, {"layers": 2}, {"optimizer": "sgd"}, {"batch": 9}])
def test_fingerprint_tells_programs_apart(item, overrides):
    assert workloads.build("dense_small", **overrides).fingerprint != item.fingerprint


def test_fingerprint_ignores_names_and_values():
    def program(name, start):
        v = tf.Variable(start, name=name)
        step = tf.function(lambda x: v.assign_add(x))
        return Item.from_function(step, tf.constant(1.0))

    assert program("a", 1.0).fingerprint == program("b", 2.0).fingerprint
    assert program("a", 1.0).variables[0].node == "a"


def test_graph_is_topological_and_free_of_calls_and_devices(item):
    position = {name: i for i, name in enumerate(item.index.names)}
    for i, node in enumerate(item.graph_def.node):
        assert all(position[parse_input(text)[1]] < i for text in node.input)
        assert node.op not in ("PartitionedCall", "StatefulPartitionedCall", "IdentityN")
        assert node.device == ""
    assert len(item.outputs) == item.index.num_ops


def test_variables_are_handles_with_the_values_behind_them(item):
    # 4 dense layers: 4 kernels + 4 biases; momentum slots for each (8); learning rate, iterations.
    assert len(item.variables) == 8 + 8 + 2
    node_of = {node.name: node for node in item.graph_def.node}
    assert len({node_of[v.node].attr["shared_name"].s for v in item.variables}) == 18
    kernel = next(v for v in item.variables if v.shape == (32, 10) and np.any(v.value))
    assert node_of[kernel.node].op == "VarHandleOp"
    assert kernel.num_bytes == 32 * 10 * 4
    step, args = workloads.function("dense_small")
    assert any(np.array_equal(kernel.value, v.value) for v in Item.from_function(step, *args).variables)


def test_bytes_of_outputs(item):
    by_name = dict(zip(item.index.names, item.outputs, strict=True))
    feed = item.feeds[0]
    assert by_name[feed.node][0].num_bytes == 8 * 32 * 4  # batch x width x float32
    assert by_name[item.variables[0].node][0].num_bytes == 0  # a handle
    assert by_name[parse_input(item.fetches[0])[1]][0].shape == ()


def test_a_loop_is_one_node_with_its_functions():
    @tf.function
    def step(x):
        _, x = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x))
        return tf.cond(x > 0.0, lambda: x, lambda: -x)

    item = Item.from_function(step, tf.constant(1.0))
    assert sum(op in ("While", "StatelessWhile") for op in item.index.op_types) == 1
    assert sum(op in ("If", "StatelessIf") for op in item.index.op_types) == 1
    assert len(item.graph_def.library.function) == 4  # condition, body, two branches


def test_compiled_function_stays_a_call():
    compiled = tf.function(lambda x: tf.sin(x), jit_compile=True)
    step = tf.function(lambda x: compiled(x) + 1.0)
    item = Item.from_function(step, tf.constant(1.0))
    assert "Sin" not in item.index.op_types
    assert sum("PartitionedCall" in op for op in item.index.op_types) == 1
    assert len(item.graph_def.library.function) == 1


def looped(x):
    """A loop's output has the shape that was known when it was traced, whatever the example's."""
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x))[1]


@pytest.mark.parametrize("traced", [None, [None], [3]])
def test_a_loop_returns_what_is_as_large_as_what_enters(traced):
    anything = tf.function(input_signature=[tf.TensorSpec(traced, tf.float32)])
    item = Item.from_function(anything(looped), tf.constant([1.0, -1.0, 3.0]))
    [loop] = [i for i, op_type in enumerate(item.index.op_types) if op_type in ("While", "StatelessWhile")]
    assert [output.shape for output in item.outputs[loop]].count((3,)) == 1


def test_gradient_taken_before_does_not_matter():
    step, args = workloads.function("dense_small")
    concrete = step.get_concrete_function(*args)
    first = Item.from_function(concrete, *args).fingerprint
    with tf.GradientTape() as tape:
        loss = concrete(*args)
    assert tape.gradient(loss, args[0]) is None
    assert Item.from_function(concrete, *args).fingerprint == first


@pytest.mark.slow
@pytest.mark.parametrize(
    # Inception-V3 with RMSprop has 6,745 ops, ResNet-50 with SGD 3,220.
    ("name", "ops", "image"),
    [("inception_v3", 6_700, (32, 299, 299, 3)), ("resnet50", 3_200, (32, 224, 224, 3))],
)
def test_large_training_steps_are_built_within_a_minute(name, ops, image):
    begin_s = time.process_time()
    item = workloads.build(name)
    elapsed_s = time.process_time() - begin_s
    assert item.index.num_ops > ops
    assert [feed.shape for feed in item.feeds] == [image, image[:1]]
    assert elapsed_s < 60.0


def test_strings_are_values_like_others():
    prefix = tf.Variable("ab", name="prefix")
    item = Item.from_function(tf.function(lambda x: tf.strings.join([prefix, x])), tf.constant("c"))
    (variable,), (feed,) = item.variables, item.feeds
    for value, expected in [(variable.value, b"ab"), (feed.value, b"c")]:
        assert value.shape == () and value.dtype == object and value.item() == expected


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


def test_an_op_is_of_the_first_stage_that_is_found_in_its_name(small):
    stage_of_op = dataclasses.replace(small, stages=("dense_1/", "dense")).stage_of_op.tolist()
    for name, stage in zip(small.index.names, stage_of_op, strict=True):
        assert stage == (0 if "dense_1/" in name else 1 if "dense" in name else -1), name
    assert set(stage_of_op) == {-1, 0, 1}
    assert set(small.stage_of_op.tolist()) == {-1}


def test_equal_elements_take_the_room_of_one(tmp_path):
    def size(start):
        variable = tf.Variable(start)
        return len(item_bytes(Item.from_function(tf.function(lambda: variable + 1.0))))

    # 100,000 elements of 4 bytes, or one.
    assert 390_000 < size(tf.random.normal([100_000])) - size(tf.ones([100_000])) < 410_000


def test_what_needs_this_process_is_not_kept():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4]), 0)
    of_table = Item.from_function(tf.function(lambda x: table.lookup(x)), tf.constant([1, 2]))
    of_python = Item.from_function(
        tf.function(lambda x: tf.numpy_function(lambda y: y, [x], tf.float32)), tf.ones(2)
    )
    for item in (of_table, of_python):
        assert not can_be_kept(item)
        with refused(r"cannot be in a file: .*; trace it in every process"):
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
    with refused(r"item lacks a part of an item .*; trace the program again$"):
        read_item_file(path)


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


def test_a_fault_in_a_text_is_told_with_its_line(tmp_path):
    (tmp_path / "graph.pbtxt").write_text('node {\n  name: "x"\n  op: Const\n}\n')
    with refused(r"graph: it is no .* binary nor text \(3:.*Const.*\); give the file of one"):
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
    both = read_saved_model(tmp_path, ["serve", "tpu"])
    assert list(both.meta_graph.meta_info_def.tags) == ["tpu", "serve"]
    with refused(r"no graph tagged \{\}; it has \{serve, tpu\}, \{serve\}; give one"):
        read_saved_model(tmp_path, [])


def test_a_model_without_signatures_tells_its_functions(tmp_path):
    tf.saved_model.save(Doubling(), str(tmp_path), signatures={})
    with refused(r"without signatures; place a function of it \(it has double\) from a script"):
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
