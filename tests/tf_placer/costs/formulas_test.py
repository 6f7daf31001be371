"""Cost formulas against arithmetic done by hand, the work of ops as arrays, and kernel look-up."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from colocation.op_facts import index_graph
from tests.tf1_programs import made, program
from tests.tf_placer.problem.small_problems import without_overheads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import analytic_costs, find_kernel, frame_trips, trip_count
from tf_placer.costs.formulas import (
    FORMULA_OF_TYPE,
    FORMULAS,
    FREE,
    Kind,
    OpView,
    OpWork,
    Work,
    WorkClass,
    work_of,
)
from tf_placer.graph.item import Item
from tf_placer.graph.sizes import OutputSpec


def _spec(tensor) -> OutputSpec:
    # A batch normalization's reserve space has no static shape; no formula reads it.
    shape = () if tensor.shape.rank is None else tuple(tensor.shape)
    return OutputSpec.of(shape, tensor.dtype)


def _fed(value):
    if isinstance(value, list):
        return [_fed(item) for item in value]
    spec = tf.TensorSpec(value) if isinstance(value, tuple) else value
    return tf.compat.v1.placeholder(spec.dtype, spec.shape) if isinstance(spec, tf.TensorSpec) else value


def _work(op_type: str, **inputs) -> Work:
    """Work of an op; a tuple is the shape of floats that it reads."""
    with tf.Graph().as_default():
        outputs = getattr(tf.raw_ops, op_type)(**{name: _fed(value) for name, value in inputs.items()})
        op = tf.nest.flatten(outputs)[0].op
        return work_of(OpView(op.node_def, tuple(map(_spec, op.inputs)), tuple(map(_spec, op.outputs))))


def test_every_op_type_with_a_formula_exists_in_tensorflow():
    assert [op_type for op_type in FORMULA_OF_TYPE if op_def_registry.get(op_type) is None] == []
    assert len(FORMULA_OF_TYPE) >= 318


def test_convolution_and_both_gradients_do_the_same_multiply_adds():
    # 8 x 8 outputs, 3 x 3 window, 4 -> 5 channels, batch 2: 2*64*5 outputs * 2 * 36 = 46,080 FLOPs.
    x, f, dy = (2, 8, 8, 4), (3, 3, 4, 5), (2, 8, 8, 5)
    same = {"strides": [1] * 4, "padding": "SAME"}
    bytes_ = 4 * (2 * 64 * 4 + 3 * 3 * 4 * 5 + 2 * 64 * 5)
    sizes = 4 * 4  # the int32 sizes that a gradient reads
    forward = _work("Conv2D", input=x, filter=f, **same)
    assert forward == Work(WorkClass.CONVOLUTION_FIRST, 46_080.0, bytes_, tiles=2)
    to_input = _work("Conv2DBackpropInput", input_sizes=[*x], filter=f, out_backprop=dy, **same)
    assert to_input == Work(WorkClass.CONVOLUTION_FIRST_INPUT_GRADIENT, 46_080.0, bytes_ + sizes, tiles=2)
    to_filter = _work("Conv2DBackpropFilter", input=x, filter_sizes=[*f], out_backprop=dy, **same)
    assert to_filter == Work(WorkClass.CONVOLUTION_FIRST_FILTER_GRADIENT, 46_080.0, bytes_ + sizes)
    # One that is depthwise has no sum over channels: 2 * 64 * 4 outputs * 2 * 9.
    depthwise = _work("DepthwiseConv2dNative", input=x, filter=(3, 3, 4, 1), **same)
    assert (depthwise.work_class, depthwise.flops) == (WorkClass.DEPTHWISE_CONVOLUTION, 9_216.0)


FLOPS = 2 * 3 * 7 * 5


@pytest.mark.parametrize(
    ("op_type", "inputs", "flops"),
    [
        ("MatMul", {"a": (3, 5), "b": (5, 7)}, FLOPS),
        ("MatMul", {"a": (5, 3), "b": (5, 7), "transpose_a": True}, FLOPS),
        ("BatchMatMulV2", {"x": (2, 3, 5), "y": (5, 7)}, 2 * FLOPS),
        ("BatchMatMulV2", {"x": (2, 5, 3), "y": (2, 5, 7), "adj_x": True}, 2 * FLOPS),
        ("Einsum", {"inputs": [(2, 3, 5), (5, 7)], "equation": "abc,cd->abd"}, 2 * FLOPS),
        ("Einsum", {"inputs": [(2, 3, 5), (7, 5)], "equation": "...c,dc->...d"}, 2 * FLOPS),
    ],
)
def test_matrix_products_count_two_per_multiply_add(op_type, inputs, flops):
    work = _work(op_type, **inputs)
    assert (work.work_class.kind, work.flops) == (Kind.MATRIX_PRODUCT, float(flops))


@pytest.mark.parametrize(
    ("op_type", "inputs", "expected"),
    [
        # [2, 3] + [3]: 6 additions; reads 6 + 3, writes 6 floats.
        ("AddV2", {"x": (2, 3), "y": (3,)}, Work(WorkClass.STREAMING, 6.0, 60)),
        ("Exp", {"x": (6,)}, Work(WorkClass.STREAMING, 15.0 * 6, 48)),
        # Three inputs of 6: two additions each; 4 tensors of 24 bytes.
        ("AddN", {"inputs": [(6,), (6,), (6,)]}, Work(WorkClass.STREAMING, 12.0, 96)),
        # 24 floats in, 4 out, and one int32 axis.
        ("Sum", {"input": (4, 6), "axis": 1}, Work(WorkClass.REDUCTION, 24.0, 4 * (24 + 4 + 1))),
        # 2 x 2 outputs, window 2 x 2: 16 comparisons; 16 floats in, 4 out.
        (
            "MaxPool",
            {"input": (1, 4, 4, 1), "ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"},
            Work(WorkClass.POOLING, 16.0, 80),
        ),
        # Only the slice is read: 2 * 3 floats.
        ("Slice", {"input": (100,), "begin": [0], "size": [3]}, Work(WorkClass.REARRANGEMENT, 0, 24)),
        # 3 rows of 5 floats read and written, 3 int32 indices; the table of 1000 rows is not.
        (
            "GatherV2",
            {"params": (1000, 5), "indices": tf.TensorSpec([3], tf.int32), "axis": 0},
            Work(WorkClass.IRREGULAR, 0.0, 2 * 60 + 12),
        ),
        # Writes 8 floats; 50 operations for each.
        ("RandomUniform", {"shape": [8], "dtype": tf.float32}, Work(WorkClass.RANDOM, 400.0, 32)),
    ],
)
def test_memory_bound_families(op_type, inputs, expected):
    assert _work(op_type, **inputs) == expected


def test_an_optimizer_update_passes_over_variable_slots_and_gradient():
    with tf.Graph().as_default():
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[6])
        op = tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=_fed(()), delta=_fed((6,)))
    specs = OutputSpec((), tf.resource, 0), OutputSpec((), tf.float32, 4), OutputSpec((6,), tf.float32, 24)
    work = work_of(OpView(op.node_def, specs, ()))
    # Reads gradient and variable, writes the variable: 3 x 24 bytes; a product and a difference each.
    assert work == Work(WorkClass.STREAMING, 12.0, 72)


@pytest.mark.parametrize(("is_training", "passes"), [(True, 3), (False, 2)])
def test_fused_batch_normalization_reads_twice_when_training(is_training, passes):
    scale = dict.fromkeys(("scale", "offset", "mean", "variance"), (3,))
    work = _work("FusedBatchNormV3", x=(2, 4, 4, 3), **scale, is_training=is_training)
    assert work.num_bytes == passes * 4 * 2 * 4 * 4 * 3


@pytest.mark.parametrize(
    "op_type", sorted(name for name, formula in FORMULA_OF_TYPE.items() if formula is FORMULAS["free"])
)
def test_free_ops_are_free(op_type):
    node = tf.compat.v1.NodeDef(name="op", op=op_type)
    spec = OutputSpec((1000,), tf.float32, 4000)
    assert work_of(OpView(node, (spec,), (spec,))) is FREE


def test_an_unknown_op_type_is_a_marked_guess_over_its_bytes():
    node = tf.compat.v1.NodeDef(name="op", op="NobodyKnowsThis")
    view = OpView(node, (OutputSpec((2,), tf.float32, 8),), (OutputSpec((3,), tf.float32, 12),))
    assert work_of(view) == Work(WorkClass.STREAMING, 0.0, 20, guessed=True)


def _convolved(image, weights, strides=(1, 1), layout="NHWC", dilations=(1, 1)):
    step, spread = ([1, *two, 1] if layout == "NHWC" else [1, 1, *two] for two in (strides, dilations))
    settings = {"strides": step, "dilations": spread, "data_format": layout, "padding": "SAME"}
    return _work("Conv2D", input=image, filter=weights, **settings)


@pytest.mark.parametrize(
    ("image", "weights", "settings", "name"),
    [
        ((8, 14, 14, 256), (1, 1, 256, 64), {}, "1X1"),
        ((8, 14, 14, 256), (1, 1, 256, 64), {"strides": (2, 2)}, "STRIDED"),
        ((8, 14, 14, 256), (3, 3, 256, 64), {"strides": (2, 2)}, "STRIDED"),
        ((8, 224, 224, 3), (7, 7, 3, 64), {"strides": (2, 2)}, "FIRST"),
        ((8, 14, 14, 256), (3, 3, 256, 32), {}, "3X3_TO_32"),
        ((8, 14, 14, 256), (3, 3, 256, 33), {}, "3X3_TO_64"),
        ((8, 14, 14, 128), (3, 3, 128, 512), {}, "3X3_TO_128"),
        ((8, 14, 14, 256), (3, 3, 256, 256), {}, "3X3_WIDE"),
        ((8, 256, 14, 14), (3, 3, 256, 256), {"layout": "NCHW"}, "3X3_WIDE"),
        ((8, 7, 7, 512), (3, 3, 512, 512), {}, "3X3_SMALL"),
        ((8, 512, 7, 7), (3, 3, 512, 512), {"layout": "NCHW"}, "3X3_SMALL"),
        ((8, 14, 14, 256), (3, 3, 256, 256), {"dilations": (2, 2)}, "OTHER"),
        ((8, 14, 14, 256), (3, 3, 64, 256), {}, "OTHER"),  # four groups
        ((8, 14, 14, 64), (5, 5, 64, 64), {}, "SQUARE"),
        ((8, 17, 17, 128), (1, 7, 128, 128), {}, "OTHER"),
    ],
)
def test_the_class_of_a_convolution(image, weights, settings, name):
    assert _convolved(image, weights, **settings).work_class == WorkClass[f"CONVOLUTION_{name}"]


def test_tiles_of_a_convolution_are_of_positions_by_channels():
    # 2 x 10 x 10 positions are 4 rows of tiles of 64, 65 channels two columns.
    assert _convolved((2, 10, 10, 16), (3, 3, 16, 65)).tiles == 8


@pytest.mark.parametrize(
    ("shapes", "name", "tiles"),
    [
        (((16, 5), (5, 700)), "PRODUCT_TO_16", 0),
        (((700, 5), (5, 32)), "PRODUCT_TO_32", 0),
        (((64, 5), (5, 700)), "PRODUCT_TO_64", 0),
        (((128, 5), (5, 700)), "PRODUCT_TO_128", 2 * 11),
        (((129, 5), (5, 700)), "PRODUCT_WIDE", 3 * 11),
    ],
)
def test_the_class_of_a_product_is_by_its_smaller_side(shapes, name, tiles):
    work = _work("MatMul", a=shapes[0], b=shapes[1])
    assert (work.work_class, work.tiles) == (WorkClass[name], tiles)


X, Y = (6, 128, 40), (6, 40, 65)


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [("BatchMatMulV2", {"x": X, "y": Y}), ("Einsum", {"inputs": [X, Y], "equation": "bij,bjk->bik"})],
)
def test_batched_products_are_apart(op_type, inputs):
    work = _work(op_type, **inputs)
    assert (work.work_class, work.tiles) == (WorkClass.BATCHED_PRODUCT_TO_128, 6 * 2 * 2)


def test_sums():
    work = OpWork([1, 2], [10, 20], [0, 1], [WorkClass.STREAMING, WorkClass.CONVOLUTION_1X1])
    assert work.sum().tolist() == [3, 30, 1]
    assert (work.flops.dtype, work.work_class.dtype) == (np.float64, np.int64)


@pytest.mark.parametrize("name", ["flops", "num_bytes", "launches", "work_class"])
def test_what_is_no_work(name):
    for value in (-1.0, float("nan"), float("inf")) if name != "work_class" else (999,):
        with pytest.raises(InputError, match="work is no number of at least 0 or no WorkClass for some op"):
            OpWork(**{"flops": [1], "num_bytes": [1], "launches": [1], name: [value]})


def test_work_of_before_classes_has_none():
    assert OpWork([1, 0], [10, 0], [1, 0]).work_class.tolist() == [WorkClass.UNCLASSIFIED, WorkClass.FREE]


def test_every_class_is_of_a_kind():
    assert {one.kind for one in WorkClass} == set(Kind)
    assert WorkClass.CONVOLUTION_3X3_WIDE.kind is Kind.CONVOLUTION
    assert (WorkClass["CONVOLUTION_1X1"], WorkClass["CONVOLUTION_OTHER_FILTER_GRADIENT"]) == (
        10,
        39,
    )  # of files
    assert WorkClass.BATCHED_PRODUCT_WIDE.kind is Kind.MATRIX_PRODUCT
    assert WorkClass.DEPTHWISE_CONVOLUTION.kind is Kind.DEPTHWISE_CONVOLUTION
    assert WorkClass.SOFTMAX.kind is Kind.REDUCTION


@pytest.mark.parametrize(
    ("make", "dtype", "on_gpu", "on_cpu"),
    [
        # Whether a kernel computes on the host; None where there is none.
        (lambda x: tf.raw_ops.AddV2(x=x, y=x), tf.float32, {False}, {False}),
        (lambda x: tf.raw_ops.AddV2(x=x, y=x), tf.int32, {True}, {False}),
        (lambda x: tf.raw_ops.Add(x=x, y=x), tf.string, {None}, {True, False}),
        (lambda x: tf.raw_ops.StringLength(input=x), tf.string, {None}, {True, False}),
        (lambda x: tf.raw_ops.Identity(input=x), tf.float32, {True, False}, {True, False}),
        (lambda x: x, tf.string, {True, False}, {True, False}),
    ],
    ids=["its own", "host code", "none of a type", "of CPUs alone", "default", "a placeholder"],
)
def test_a_kernel_is_found_where_there_is_one(make, dtype, on_gpu, on_cpu):
    with tf.Graph().as_default():
        node = make(_fed(tf.TensorSpec([2], dtype))).op.node_def
    assert find_kernel(node, "GPU") in on_gpu and find_kernel(node, "CPU") in on_cpu


def test_an_unknown_op_has_no_kernel():
    assert find_kernel(tf.compat.v1.NodeDef(name="a", op="NobodyKnowsThis"), "CPU") is None


def count(make_maximum) -> int | None:
    """Iterations of a loop whose maximum is computed in the graph."""

    @tf.function
    def program():
        return tf.while_loop(lambda i: i < 9, lambda i: (i + 1,), [0], maximum_iterations=make_maximum())[0]

    index = index_graph(program.get_concrete_function().graph.as_graph_def())
    (loop,) = (op for op, op_type in enumerate(index.op_types) if op_type in ("While", "StatelessWhile"))
    return trip_count(index, loop)


def test_a_constant_expression_is_computed_and_data_is_not_known():
    assert count(lambda: tf.minimum(tf.constant(3), 8) + 1) == 4
    assert count(lambda: tf.random.uniform([], maxval=5, dtype=tf.int32)) is None


def test_what_the_count_waits_for_does_not_run(tmp_path):
    def after_writing() -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "written"), "x")]):
            return tf.identity(tf.constant(4)) + 1

    assert count(after_writing) == 5
    assert list(tmp_path.iterdir()) == []


def test_a_function_of_python_is_not_called():
    called = []

    def most(value):
        called.append(value)
        return value

    def computed() -> tf.Tensor:
        value = tf.numpy_function(most, [tf.constant(4)], tf.int32, stateful=False)
        called.clear()
        return tf.ensure_shape(value, [])

    assert count(computed) is None
    assert called == []


def test_how_many_rows_a_ragged_tensor_has_is_not_known():
    @tf.function
    def program(sentences):
        words = tf.strings.split(sentences)
        return tf.map_fn(lambda row: tf.size(row), words, fn_output_signature=tf.int32)

    item = Item.from_function(program, tf.constant(["a b", "c"]))
    (loop,) = (op for op, kind in enumerate(item.index.op_types) if kind in ("While", "StatelessWhile"))
    assert trip_count(item.index, loop, item.outputs) is None


v1 = tf.compat.v1


def item_of(program_of_v1) -> Item:
    return Item.from_meta_graph(program_of_v1.meta_graph, program_of_v1.fetches)


def runs(item: Item) -> dict[str, float]:
    counts, unknown = frame_trips(item.index, item.outputs)
    assert unknown == 0
    return dict(zip(item.index.names, counts.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("counter", {1, 10}),
        ("powers", {1, 5}),
        ("nested", {1, 4, 4 * 3}),
        ("arrays", {1, 6}),
        ("any_batch", {1, 12}),  # by the shape of what is fed
        ("loop_in_branch", {1, 3}),
        ("recurrent_training", {1, 5}),
        ("nested_training", {1, 3, 3 * 2}),
        ("branches", {1}),
    ],
)
def test_every_op_of_a_loop_runs_as_often_as_the_loop_counts(name, counts):
    assert set(runs(item_of(program(name))).values()) == counts


def test_gradients_run_as_often_as_what_they_are_the_gradients_of():
    found = runs(item_of(program("nested_training")))
    products = [count for name, count in found.items() if name.endswith(("matmul", "/MatMul", "/MatMul_1"))]
    assert products == [6.0] * 3  # forward, and by both factors


@pytest.mark.parametrize(
    ("holds", "following", "start", "count"),
    [
        (lambda i: i < 10, lambda i: i + 3, 0, 4),
        (lambda i: i <= 9, lambda i: i + 3, 0, 4),
        (lambda i: i > 0, lambda i: i - 2, 9, 5),
        (lambda i: i >= 1, lambda i: i + (-2), 9, 5),
        (lambda i: tf.constant(10) > i, lambda i: 3 + i, 0, 4),
        (lambda i: tf.logical_and(i < 10, i < 5), lambda i: i + 1, 0, 5),
        (lambda i: i < 3, lambda i: i + 1, 7, 0),
    ],
)
def test_counts_up_and_down(holds, following, start, count):
    item = item_of(made(lambda: [v1.while_loop(holds, following, [tf.constant(start)], name="loop")]))
    assert runs(item)["loop/Merge"] == count


@pytest.mark.parametrize(
    ("holds", "following"),
    [
        (lambda i: tf.reduce_sum(i) < 10, lambda i: i + 1),  # no comparison of the counter itself
        (lambda i: i < 10, lambda i: i * 2 + 1),
        (lambda i: i < 10, lambda i: i - 1),  # never ends
        (lambda i: tf.random.uniform([]) < 0.5, lambda i: i + 1),
    ],
)
def test_a_loop_of_unknown_count_is_one_iteration_and_a_guess(holds, following):
    item = item_of(made(lambda: [v1.while_loop(holds, following, [tf.constant(1)], name="loop")]))
    counts, unknown = frame_trips(item.index, item.outputs)
    assert unknown == 1
    assert set(counts) == {1.0}
    assert analytic_costs(item, Cluster.preset("k40x2")).guessed["LoopCond"] == 1


def test_an_op_costs_its_runs_or_the_host_s_time_to_feed_them():
    def step(count: int, cluster: Cluster) -> np.ndarray:
        body = lambda i, y: (i + 1, tf.matmul(y, y, name="product"))  # noqa: E731
        x = lambda: v1.placeholder(tf.float32, [64, 64], name="x")  # noqa: E731
        item = item_of(made(lambda: [v1.while_loop(lambda i, _: i < count, body, (0, x()), name="loop")[1]]))
        return analytic_costs(item, cluster).compute_ns[item.index.id_of_name["loop/product"]]

    fed = Cluster.preset("k40x2")
    unfed = without_overheads(fed)
    np.testing.assert_array_equal(step(9, unfed), 9 * step(1, unfed))
    # The simulator counts the first run; a CPU feeds itself.
    np.testing.assert_array_equal(step(9, fed)[:2], 8 * fed.dispatch_ns()[:2])
    assert step(9, fed)[2] == step(9, unfed)[2]
