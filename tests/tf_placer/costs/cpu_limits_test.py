"""CPU kernels refuse what ``cpu_limits`` says, and nothing else that it was asked about."""

import functools
import json

import pytest
import tensorflow as tf

from tests.own_process import python
from tests.refused import refused
from tests.tf1_programs import made
from tests.tf_placer.costs import cpu_limits_process
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device
from tf_placer.costs import analytic
from tf_placer.costs import analytic as cpu_limits
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem

v1 = tf.compat.v1


@functools.cache
def outcomes(onednn: str) -> dict:
    """What each op does on a CPU of a process of its own: oneDNN is on or off from TensorFlow's import on."""
    settings = {"TF_ENABLE_ONEDNN_OPTS": onednn, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = python("-m", cpu_limits_process.__name__, **settings)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("with_onednn", [0, 1])
def test_kernels_refuse_what_is_said(with_onednn):
    found = outcomes(str(with_onednn))
    if with_onednn and not found["onednn"]:
        pytest.skip("this build of TensorFlow has no oneDNN")
    assert found["onednn"] == bool(with_onednn)
    for name, (*said, does) in found["cases"].items():
        assert said[with_onednn] == does, name


def test_every_op_of_the_table_is_run():
    with tf.Graph().as_default():
        names = cpu_limits_process.cases()
    run = {
        what: {name.partition(" ")[0] for name in names if name.endswith(what)}
        for what in ("NCHW", "NCDHW", "inference", "dilated", "grouped", "of channels")
    }
    assert run["NCHW"] | run["NCDHW"] >= cpu_limits.CHANNELS_LAST_ONLY
    assert run["inference"] >= cpu_limits.CHANNELS_LAST_IN_INFERENCE
    assert run["dilated"] >= cpu_limits.NO_DILATION
    assert run["grouped"] >= cpu_limits.NO_GROUPS.keys()
    assert run["of channels"] >= cpu_limits.NO_POOLING_OF_CHANNELS


def step_of(layout: str, dilation: int) -> list[tf.Tensor | tf.Operation]:
    """A training step of convolutions, pools and batch normalization, in the default graph."""
    first = layout == "NCHW"
    x = v1.placeholder(tf.float32, [4, 3, 16, 16] if first else [4, 16, 16, 3], name="x")
    weights = v1.get_variable("w", [3, 3, 3, 8], use_resource=True)
    y = tf.nn.conv2d(x, weights, 1, "SAME", data_format=layout, dilations=dilation)
    y, *_ = v1.nn.fused_batch_norm(y, tf.ones([8]), tf.zeros([8]), data_format=layout)
    y = tf.nn.max_pool2d(tf.nn.relu(y), 2, 2, "SAME", data_format=layout)
    y = tf.nn.avg_pool2d(y, 2, 2, "SAME", data_format=layout)
    loss = tf.reduce_mean(y * y, name="loss")
    return [loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss)]


def convolutional_step(layout: str = "NCHW", dilation: int = 1) -> Item:
    found = made(lambda: step_of(layout, dilation))
    return Item.from_meta_graph(found.meta_graph, found.fetches)


def cpu_devices(problem: Problem, name: str) -> list[bool]:
    """Whether an op may be on each CPU."""
    is_cpu = [device.type == "CPU" for device in problem.cluster.devices]
    return problem.allowed[problem.unit_of_op[problem.op_names.index(name)], is_cpu].tolist()


def only_cpu() -> Cluster:
    name = "/job:localhost/replica:0/task:0/device:CPU:0"
    return Cluster("toy", (Device(name, "CPU", "toy", 1 << 33, 2, 1e11, 1e10, 1_000),), ())


def test_no_plan_of_a_channels_first_step_has_its_kernels_on_a_cpu():
    problem = analytic_problem(convolutional_step(), Cluster.preset("k40x2"))
    limited = {"Conv2D", "MaxPool", "AvgPool", "MaxPoolGrad", "AvgPoolGrad", "Conv2DBackpropFilter"}
    names = {op_type: name for name, op_type in zip(problem.op_names, problem.op_types, strict=True)}
    assert limited <= names.keys()
    assert not any(any(cpu_devices(problem, names[op_type])) for op_type in limited)
    assert all(cpu_devices(problem, names["FusedBatchNormV3"]))
    last = analytic_problem(convolutional_step("NHWC"), Cluster.preset("k40x2"))
    assert last.allowed.all()


@pytest.mark.parametrize(
    ("layout", "dilation", "told"),
    [
        ("NCHW", 1, r"^op '.*' \(\w+\) has a kernel on no device of cluster 'toy': TensorFlow has no CPU kernel of \w+ "
         r"for the layout NCHW; make the model channels-last \(data_format='channels_last'\) or give a cluster with a "
         r"GPU$"),
        ("NHWC", 2, r"kernel of Conv2DBackprop(Input|Filter) for dilations \[1, 2, 2, 1\]; give a cluster with a GPU$"),
    ],
)  # fmt: skip
def test_what_only_a_gpu_runs_is_told_where_there_is_none(layout, dilation, told):
    with refused(told):
        analytic_problem(convolutional_step(layout, dilation), only_cpu())


def test_an_op_within_a_loop_is_told_of_the_loop():
    weights = tf.ones([3, 3, 4, 4])

    @tf.function
    def step(x):
        body = lambda i, y: (i + 1, tf.nn.conv2d(y, weights, 1, "SAME", data_format="NCHW"))  # noqa: E731
        return tf.while_loop(lambda i, _: i < 3, body, (0, x), maximum_iterations=3)[1]

    item = Item.from_function(step, tf.ones([2, 4, 8, 8]))
    with refused(r"\((Stateless)?While\) .* no CPU kernel of Conv2D for the layout NCHW"):
        analytic_problem(item, only_cpu())


@pytest.mark.parametrize("onednn", [True, False])
def test_a_cpu_of_this_machine_runs_what_its_kernels_do(onednn, monkeypatch):
    monkeypatch.setattr(analytic, "is_onednn_on", lambda: onednn)
    if not onednn:
        with refused("for the layout NCHW"):
            analytic_problem(convolutional_step(), Cluster.logical(2))
        return
    problem = analytic_problem(convolutional_step(), Cluster.logical(2))
    unit_of = {op_type: problem.unit_of_op[op] for op, op_type in enumerate(problem.op_types)}
    assert unit_of["MaxPool"] == unit_of["MaxPoolGrad"]  # oneDNN has the second only next to the first
    assert problem.allowed.all()
