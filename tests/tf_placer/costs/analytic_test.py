"""Analytic costs: rooflines by hand, loops and branches, and whole steps against published times."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2, op_def_pb2

from colocation.tensorflow_internals import registered_op
from tests.tf_placer.problem.small_problems import altered
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device, Link, device_of_model, preset_names
from tf_placer.costs import formulas
from tf_placer.costs.analytic import OpCosts, analytic_costs, run_time_ns
from tf_placer.costs.formulas import FORMULA_OF_TYPE, Kind, OpView, WorkClass, efficiencies, work_of
from tf_placer.graph.item import Item
from tf_placer.graph.program import Feed, Program
from tf_placer.graph.size_rules import AS_INPUT, AS_READ, RAGGED, Unsized, sized
from tf_placer.graph.sizes import OutputSpec
from tf_placer.workloads import build


def _cluster() -> Cluster:
    # 1 Tflop/s and 100 GB/s GPU; CPU of two streams that share 100 Gflop/s and 10 GB/s.
    gpu = Device("/job:localhost/replica:0/task:0/device:GPU:0", "GPU", "toy", 1, 1, 1e12, 1e11, 5_000)
    cpu = Device("/job:localhost/replica:0/task:0/device:CPU:0", "CPU", "toy", 1, 2, 1e11, 1e10, 1_000)
    return Cluster("toy", (gpu, cpu), (Link(0, 1, 1, 1e9, "a"), Link(1, 0, 1, 1e9, "b")))


def _costs(fn, *args, cluster: Cluster | None = None) -> tuple[Item, OpCosts]:
    item = Item.from_function(tf.function(fn, autograph=False), *args)
    return item, analytic_costs(item, cluster or _cluster())


def _row(item: Item, *op_types: str) -> int:
    return next(op for op, op_type in enumerate(item.index.op_types) if op_type in op_types)


def test_memory_bound_op_takes_launch_plus_bytes_over_bandwidth():
    item, costs = _costs(lambda x: x + 1.0, tf.zeros([1_000_000]))
    # 8,000,004 bytes. GPU: at 0.75 of 100 GB/s 106,666.7 ns, to which 4,000 ns of arithmetic add 0.1 (smooth maximum),
    # plus 1.5 launches of 5,000. CPU stream: at 0.6 of 5 GB/s 2,666,668 ns, plus 1,000.
    np.testing.assert_array_equal(costs.compute_ns[_row(item, "AddV2")], [114_167, 2_667_668])


def test_compute_bound_op_takes_launch_plus_flops_over_rate():
    item, costs = _costs(tf.linalg.matmul, tf.zeros([1000, 1000]), tf.zeros([1000, 1000]))
    # 2e9 FLOPs. GPU at the share of wide products: 2.4 ms, to which 12e6 bytes at the share of products add 0.01 %;
    # 1.5 launches of 5,000. CPU stream at 0.6 x 50 Gflop/s: 66,666,666.7 ns.
    np.testing.assert_array_equal(costs.compute_ns[_row(item, "MatMul")], [_product_ns(1000), 66_667_667])


def _product_ns(side: int) -> int:
    """Of two square matrices on the GPU."""
    compute_ns = 2 * side**3 / (1e3 * formulas.PRODUCT_SHARES[WorkClass.PRODUCT_WIDE])
    memory_ns = 12 * side**2 / (100 * 0.75 * formulas.KIND_MEMORY_SHARES[Kind.MATRIX_PRODUCT])
    return 7_500 + round((compute_ns**4 + memory_ns**4) ** 0.25)


def test_a_gpu_takes_the_last_wave_of_tiles_besides():
    p100 = device_of_model("p100")
    of_class, tiles = np.full(2, WorkClass.CONVOLUTION_1X1), np.array([0, 112])
    whole_ns, tiled_ns = run_time_ns(of_class, np.full(2, 1e9), np.zeros(2), tiles, p100)
    # 56 multiprocessors, two waves of tiles and one more: half as much again, without the launches.
    launches_ns = 1.5 * p100.launch_ns
    assert tiled_ns - launches_ns == pytest.approx(1.5 * (whole_ns - launches_ns), rel=1e-5)


def test_tf32_has_no_winograd():
    found = {model: efficiencies("GPU", model).compute for model in ("a100", "a100_fp32")}
    dense, winograd = WorkClass.CONVOLUTION_1X1, WorkClass.CONVOLUTION_3X3_WIDE
    assert found["a100"][winograd] == found["a100"][dense]
    assert found["a100_fp32"][winograd] > 2 * found["a100_fp32"][dense]


def test_kepler_reaches_less_of_its_peak():
    k40, p100 = (efficiencies("GPU", model) for model in ("k40", "p100"))
    matrices = [one for one in WorkClass if one.kind in (Kind.CONVOLUTION, Kind.MATRIX_PRODUCT)]
    np.testing.assert_allclose(
        k40.compute[matrices], formulas.GPU_MODELS["k40"].compute * p100.compute[matrices]
    )


def test_free_ops_cost_exactly_zero_on_every_device():
    item, costs = _costs(lambda x: tf.reshape(x, [10, 10]) * 2.0, tf.zeros([100]))
    for op_type in ("Placeholder", "Reshape", "Const"):
        assert costs.compute_ns[_row(item, op_type)].tolist() == [0, 0]
    assert (costs.compute_ns[_row(item, "Mul")] > 0).all()


def test_host_memory_kernels_of_the_gpu_take_cpu_time():
    item, costs = _costs(lambda i: i + 1, tf.constant(3))
    row = costs.compute_ns[_row(item, "AddV2")]
    # 12 bytes at 0.6 x 5 GB/s are 4 ns, plus the CPU's launch of 1,000.
    assert row.tolist() == [1_004, 1_004]


def test_an_op_type_without_formula_is_counted_and_never_zero():
    item, costs = _costs(lambda x: tf.linalg.cholesky(x), tf.eye(100))
    assert costs.guessed == {"Cholesky": 1}
    # 80,000 bytes at 0.75 of 100 GB/s: 1,066.7 ns, plus 1.5 launches of 5,000.
    row = _row(item, "Cholesky")
    assert costs.compute_ns[row, 0] == 8_567
    assert (costs.work.flops[row], costs.work.num_bytes[row], costs.work.launches[row]) == (0, 80_000, 1)


def _loop(count):
    def body(i, y):
        return i + 1, tf.matmul(y, y)

    def step(x):
        return tf.while_loop(lambda i, _: i < 10, body, (0, x), maximum_iterations=count)

    return step


def test_a_loop_costs_its_body_times_its_trip_count():
    times, work = {}, {}
    for count in (1, 7):
        item, costs = _costs(_loop(count), tf.eye(100))
        row = _while(item)
        assert costs.guessed == {}
        times[count] = costs.compute_ns[row]
        work[count] = [costs.work.flops[row], costs.work.num_bytes[row], costs.work.launches[row]]
    np.testing.assert_array_equal(times[7], 7 * times[1])
    assert work[7] == [7 * amount for amount in work[1]]
    # At least the product: 2e6 FLOPs at 1 Tflop/s are 2,000 ns, plus 1.5 launches of 5,000.
    assert times[1][0] >= 9_500
    assert work[1][0] >= 2e6 and work[1][2] >= 1


def test_a_loop_takes_what_the_host_takes_to_feed_all_its_kernels():
    fed = altered(_cluster(), {"dispatch_ns": [1_000_000, 0]})
    _, unfed_costs = _costs(_loop(7), tf.eye(100))
    item, costs = _costs(_loop(7), tf.eye(100), cluster=fed)
    row = _while(item)
    # The simulator counts the first kernel, as of any op.
    assert costs.compute_ns[row, 0] == (costs.work.launches[row] - 1) * 1_000_000
    assert costs.compute_ns[row, 1] == unfed_costs.compute_ns[row, 1]
    others = np.arange(len(costs.compute_ns)) != row
    np.testing.assert_array_equal(costs.compute_ns[others], unfed_costs.compute_ns[others])


def test_a_loop_of_unknown_length_is_a_guess():
    item, costs = _costs(_loop(None), tf.eye(100))
    assert [t for t in costs.guessed if t.endswith("While")] == [item.index.op_types[_while(item)]]
    assert (costs.compute_ns[_while(item)] > 0).all()


def _while(item: Item) -> int:
    return _row(item, "While", "StatelessWhile")


def test_a_branch_costs_its_longest_side_and_has_the_most_work_of_one():
    def step(x):
        return tf.cond(x[0, 0] > 0.0, lambda: tf.matmul(x, x), lambda: tf.exp(x + 1.0) * 2.0)

    item, costs = _costs(step, tf.eye(1000))
    row = _row(item, "If", "StatelessIf")
    assert costs.compute_ns[row, 0] == _product_ns(1000)
    assert costs.work.work_class[row] == WorkClass.PRODUCT_WIDE
    # The FLOPs are of the product, the three kernels of the other side.
    assert (costs.work.flops[row], costs.work.launches[row]) == (2e9, 3)


def test_gradients_through_a_loop_with_weights_have_a_cost():
    # In the backward body what comes out of a list has no known rank; a handle has one, but not its variable's.
    weights = tf.Variable(tf.ones([4, 4]))

    def step(x):
        def body(i, y):
            row = weights.gather_nd([[0, 1], [2, 3]])
            return i + 1, tf.tanh(y @ weights) + tf.reduce_sum(row)

        with tf.GradientTape() as tape:
            y = tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
        return tape.gradient(y, weights)

    item, costs = _costs(step, tf.ones([4, 4]))
    loops = [op for op, op_type in enumerate(item.index.op_types) if "While" in op_type]
    assert len(loops) == 2
    assert (costs.compute_ns[loops] > 0).all()
    assert any("unknown shapes" in name for name in costs.guessed)


def test_work_is_what_the_times_were_made_of():
    item, costs = _costs(lambda x: tf.linalg.matmul(x, x) + 1.0, tf.zeros([10, 10]))
    product, add = _row(item, "MatMul"), _row(item, "AddV2")
    # 2 * 10^3 FLOPs over three matrices of 400 bytes; an addition an element, read and written, and its scalar.
    assert costs.work.flops[[product, add]].tolist() == [2000, 100]
    assert costs.work.num_bytes[[product, add]].tolist() == [1200, 804]
    assert costs.work.launches[[product, add]].tolist() == [1, 1]
    assert costs.work.work_class[[product, add]].tolist() == [WorkClass.PRODUCT_TO_16, WorkClass.STREAMING]
    free = [op for op in range(item.index.num_ops) if op not in (product, add)]
    assert len(free) >= 2 and not costs.work.launches[free].any()
    assert costs.compute_ns[free].sum() == 0


def test_the_graph_is_only_read():
    @tf.function
    def step(x):
        x = tf.while_loop(lambda y: tf.reduce_all(y < 8.0), lambda y: [y + 1.0], [x])[0]
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.sin(x), lambda: x)

    item = Item.from_function(step, tf.zeros([100]))
    before = item.graph_def.SerializeToString(deterministic=True)
    analytic_costs(item, _cluster())
    assert item.graph_def.SerializeToString(deterministic=True) == before


def test_a_loop_may_not_run_where_its_body_has_no_kernel():
    def step(x):
        return tf.while_loop(
            lambda i, _: i < 3, lambda i, s: (i + 1, tf.strings.join([s, s])), (0, x), maximum_iterations=3
        )

    item, costs = _costs(step, tf.constant("a"))
    assert costs.allowed[_while(item)].tolist() == [False, True]


@pytest.mark.parametrize("model", [*formulas.GPU_MODELS, "one that nothing is known of"])
def test_every_class_of_work_has_a_share_of_every_gpu(model):
    gpu = formulas.GPU_MODELS.get(model, formulas.ANY_GPU)
    of_class = formulas.gpu_efficiencies(gpu)
    assert set(of_class) == set(WorkClass) - {WorkClass.FREE}
    for work_class, (compute, memory) in of_class.items():
        # Winograd's algorithm for 3 x 3 does at most 2.25 times fewer multiplications in tiles of 2 x 2, four in 4 x 4.
        assert 0 < compute <= (2.25 if work_class.kind is Kind.CONVOLUTION else 1.25)
        assert 0 < memory <= 1


def test_every_described_gpu_has_a_row_of_its_own():
    devices = [device for name in preset_names() for device in Cluster.preset(name).devices]
    assert {device.model for device in devices if device.type == "GPU"} <= set(formulas.GPU_MODELS)


# Seconds per step of 32 images: 32 / (images per second at batch 64, synthetic data, fp32), from TensorFlow's
# own benchmark page of 2017 (tensorflow.org/performance/benchmarks): one P100 142 and 219, one K80 30.5 and
# 51.9.
_PUBLISHED_S = {
    ("inception_v3", "p100x1"): 32 / 142,
    ("inception_v3", "k80x2"): 32 / 30.5,
    ("resnet50", "p100x1"): 32 / 219,
    ("resnet50", "k80x2"): 32 / 51.9,
}


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["inception_v3", "resnet50"])
def test_whole_steps_are_within_a_factor_of_two_of_published_times(workload):
    item = build(workload)
    for preset in ("p100x1", "k80x2"):
        costs = analytic_costs(item, Cluster.preset(preset))
        ratio = costs.compute_ns[:, 0].sum() / 1e9 / _PUBLISHED_S[workload, preset]
        assert 0.5 < ratio < 2.0, f"{workload} on {preset}: {ratio:.2f} of the published time"
        assert costs.guessed == {}
        assert costs.allowed.any(axis=1).all()


@pytest.mark.parametrize("workload", ["dense_small", "branches_small", "lstm_lm_small", "transformer_small"])
def test_every_op_of_the_small_workloads_has_a_device_and_a_formula(workload):
    item = build(workload)
    costs = analytic_costs(item, Cluster.preset("k40x2"))
    assert costs.compute_ns.shape == costs.allowed.shape == (item.index.num_ops, 3)
    assert costs.compute_ns.dtype == np.int64
    assert costs.guessed == {}
    assert costs.allowed.any(axis=1).all()


SHAPES = ((), (3,), (6, 3), (2, 6, 6, 3))
# Their meaning hangs together with other nodes, and one alone is no graph.
CONTROL_FLOW = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Placeholder", "Switch"})
# TensorFlow 2.21 itself ends the process when it infers shapes of one that reads scalars.
CRASHES = "BoostedTrees"
# Attributes that some op checks, and that most do not have.
VALUES = {"equation": b"ab,bc->ac", "Targmax": tf.int64.as_datatype_enum}


def attribute(of: op_def_pb2.OpDef.AttrDef, numbers: int) -> attr_value_pb2.AttrValue | None:
    """Some value that an op may accept, lists with so many numbers; None where that takes a function."""
    if of.HasField("default_value"):
        return of.default_value
    types, strings = list(of.allowed_values.list.type), list(of.allowed_values.list.s)
    types = types or [tf.float32.as_datatype_enum]
    wanted = (tf.float32.as_datatype_enum, tf.int32.as_datatype_enum)
    unknown = tf.TensorShape(None).as_proto()
    value = {
        "type": {"type": VALUES.get(of.name) or next((one for one in wanted if one in types), types[0])},
        "int": {"i": max(2, of.minimum)},
        "list(int)": {"list": {"i": [1] * numbers}},
        "list(type)": {"list": {"type": [tf.float32.as_datatype_enum] * 2}},
        "list(shape)": {"list": {"shape": [unknown] * 2}},
        "string": {"s": VALUES.get(of.name, strings[0] if strings else b"")},
        "bool": {"b": False},
        "float": {"f": 1.0},
        "shape": {"shape": unknown},
    }.get(of.type)
    return value and attr_value_pb2.AttrValue(**value)


def node_of(op: op_def_pb2.OpDef, numbers: int) -> tuple[node_def_pb2.NodeDef, list[int]] | None:
    """An op of a type, and the types of what it reads."""
    node = node_def_pb2.NodeDef(name=f"of_{op.name}", op=op.name)
    for of in op.attr:
        value = attribute(of, numbers)
        if value is None:
            return None
        node.attr[of.name].CopyFrom(value)
    types: list[int] = []
    for argument in op.input_arg:
        if argument.is_ref:
            return None
        if argument.type_list_attr:
            types += node.attr[argument.type_list_attr].list.type
            continue
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        types += [node.attr[argument.type_attr].type if argument.type_attr else argument.type] * count
    return node, types


def is_accepted(node: node_def_pb2.NodeDef, types: list[int]) -> bool:
    """Whether TensorFlow takes the op with inputs of unknown rank."""
    with tf.Graph().as_default():
        try:
            tf.graph_util.import_graph_def(program([(node, types)], ()).graph_def, name="")
        except (ValueError, tf.errors.OpError):
            return False
    return True


@pytest.fixture(scope="module")
def nodes() -> list[tuple[node_def_pb2.NodeDef, list[int]]]:
    """An op of every type that takes inputs of unknown rank, and the types of what it reads."""
    found = {}
    for name in dir(tf.raw_ops):
        op = registered_op(name)
        if op is None or name in CONTROL_FLOW or name.startswith(CRASHES):
            continue
        for numbers in (4, 5, 1):  # strides of images, of volumes, and whatever else
            made = node_of(op, numbers)
            if made is not None and made[1] and is_accepted(*made):
                found[name] = made
                break
    return list(found.values())


def program(nodes: list[tuple[node_def_pb2.NodeDef, list[int]]], shape: tuple[int, ...]) -> Program:
    """All ops at once; what each reads is of unknown rank, and will be taken to be as large as ``shape``."""
    graph_def = tf.compat.v1.GraphDef()
    feeds = []

    def fed(dtype: tf.DType, shape: tuple[int, ...]) -> str:
        name = f"fed_{dtype.name}_{len(feeds)}"
        node = graph_def.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
        kind = object if dtype == tf.string else dtype.as_numpy_dtype
        feeds.append(Feed(name, shape, dtype, np.broadcast_to(np.zeros((), kind), shape)))
        return name

    sizes = graph_def.node.add(name="sizes", op="ParseTensor", input=[fed(tf.string, ())])
    sizes.attr["out_type"].type = tf.int32.as_datatype_enum

    def source(number: int) -> str:
        dtype = tf.as_dtype(number)
        if dtype == tf.resource:
            node = graph_def.node.add(name="handle", op="VarHandleOp")
            node.attr["dtype"].type = tf.float32.as_datatype_enum
            node.attr["shape"].shape.unknown_rank = True
        elif dtype == tf.variant:
            lists = [fed(tf.int32, ()), fed(tf.int32, ())]
            node = graph_def.node.add(name="list", op="EmptyTensorList", input=lists)
            node.attr["element_dtype"].type = tf.float32.as_datatype_enum
            node.attr["shape_type"].type = tf.int32.as_datatype_enum
        else:
            node = graph_def.node.add(
                name=f"of_any_rank_{number}", op="Reshape", input=[fed(dtype, shape), "sizes"]
            )
            node.attr["T"].type = number
            node.attr["Tshape"].type = tf.int32.as_datatype_enum
        return node.name

    source_of = {number: source(number) for number in sorted({one for _, types in nodes for one in types})}
    for node, types in nodes:
        added = graph_def.node.add()
        added.CopyFrom(node)
        added.input.extend(source_of[number] for number in types)
    ops = tuple(node.name for node, _ in nodes)
    return Program(graph_def, tuple(feeds), (), ops, ())


@pytest.mark.medium
def test_most_types_are_looked_at(nodes):
    types = {node.op for node, _ in nodes}
    assert len(types) > 900
    assert len(types & set(FORMULA_OF_TYPE)) > 290
    assert {
        "MatMul", "BatchMatMulV2", "Einsum", "Conv3D", "Where", "NonMaxSuppressionV3", "SegmentSum",
    } <= types  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("shape", SHAPES)
def test_all_have_sizes_and_costs(nodes, shape):
    item = Item.from_program("all", program(nodes, shape))
    kept = set(item.index.names)
    assert len(kept & {node.name for node, _ in nodes}) > 0.9 * len(nodes)
    outputs = dict(zip(item.index.names, item.outputs, strict=True))
    sizes = {outputs[name][0] for name in kept if name.startswith("of_any_rank_")}
    # Of some types, the few readers take a scalar alone.
    assert {spec.rule for spec in sizes} <= {AS_INPUT, AS_READ}
    assert {spec.shape for spec in sizes if spec.rule == AS_INPUT} == {shape}
    assert all(spec.num_bytes >= 0 for specs in item.outputs for spec in specs)
    costs = analytic_costs(item, Cluster.preset("k40x2"))
    assert (costs.compute_ns >= 0).all() and np.isfinite(costs.work.flops).all()


def spec(*shape: int) -> OutputSpec:
    return OutputSpec(shape, tf.float32, 4 * int(np.prod(shape)))


@pytest.mark.parametrize("op_type", ["MatMul", "BatchMatMulV2"])
@pytest.mark.parametrize(
    ("left", "right", "flops"),
    [
        ((6, 3), (3, 5), 2 * 30 * 3),
        # What is summed over is told by the other matrix where one is taken for a scalar or a vector.
        ((), (3, 5), 2 * 30 * 3),
        ((7,), (3, 5), 2 * 30 * 3),
        ((6, 3), (), 2 * 30 * 3),
        ((), (), 2 * 30),
    ],
)
def test_a_product_of_a_shape_that_is_an_estimate(op_type, left, right, flops):
    node = node_def_pb2.NodeDef(op=op_type)
    assert work_of(OpView(node, (spec(*left), spec(*right)), (spec(6, 5),))).flops == flops


def test_a_tensor_that_is_parsed_before_a_product_also_in_a_branch():
    weights, cluster = tf.Variable(tf.ones([4, 5])), Cluster.preset("k40x2")

    def total(text: tf.Tensor, combined) -> tf.Tensor:
        return tf.reduce_sum(combined(tf.io.parse_tensor(text, tf.float32), weights))

    def either(text: tf.Tensor) -> tf.Tensor:
        return tf.cond(text == b"", lambda: total(text, tf.matmul), lambda: total(text, tf.multiply))

    item = Item.from_function(lambda text: tf.io.parse_tensor(text, tf.float32) @ weights, tf.constant(b""))
    op = next(op for op, name in enumerate(item.index.op_types) if "MatMul" in name)
    (product,) = item.outputs[op]
    assert product.shape[-1] == 5 and product.rule
    assert analytic_costs(item, cluster).work.flops[op] == 2 * np.prod(product.shape) * 4
    costs = analytic_costs(Item.from_function(either, tf.constant(b"")), cluster)
    assert (costs.compute_ns >= 0).all() and costs.guessed


def test_a_ragged_tensor_that_does_not_say_how_it_is_cut():
    node = node_def_pb2.NodeDef(op="RaggedTensorToTensor")
    output = Unsized(
        node, tf.TensorShape([None, None]), ((2,), (6,), (), (3,)), (None,) * 4, lambda k: None, 32
    )
    assert sized(output) == ((3, 2), RAGGED)
