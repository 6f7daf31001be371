"""docs/architecture.md: the interfaces with fixed names are called as the page calls them."""

import pathlib
import re
import sys

import pytest

from tests.docs.pages import blocks, printed_by

PAGE = pathlib.Path("docs") / "architecture.md"

# What the page takes for given.
GIVEN = """
import numpy as np
import tensorflow as tf
import tf_placer

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

x = y = tf.ones([4, 4])
weight = tf.Variable(tf.ones([4, 4]))
module = tf.Module()
module.weight = weight
fn = module.serve = tf.function(
    lambda x: {"y": x @ weight}, input_signature=[tf.TensorSpec([4, 4])]
)
concrete_or_tf_function, example_args = fn, [x]
src_dir = path = "model"
dst_dir = "placed"
tf.saved_model.save(module, path, signatures={"serving_default": fn})
with tf.Graph().as_default() as graph:
    tf.compat.v1.placeholder(tf.float32, None, name="x")
    tf.ones([2], name="y")
meta_graph_def = tf.compat.v1.MetaGraphDef(graph_def=graph.as_graph_def())
arrays = dict(
    compute_ns=np.ones([2, 3], np.int64), edges=np.array([[0, 1]], np.int32), edge_bytes=np.ones(1, np.int64),
    resident_bytes=np.zeros(2, np.int64), output_bytes=np.zeros(2, np.int64), allowed=np.ones([2, 3], bool),
    cluster=tf_placer.Cluster.preset("p100x2"),
)
op_count = tf_placer.Item.from_function(fn, x).index.num_ops
priority_of_op, cluster_of_op = list(range(op_count)), [-1] * op_count
served = tf_placer.search(
    tf_placer.build_problem(tf_placer.Item.from_saved_model(path), tf_placer.Cluster.logical(2)),
    method="single", budget_evaluations=2,
)
"""


@pytest.mark.slow
def test_the_interfaces_are_there(root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    [block] = blocks(root / PAGE, "python")
    [cluster_file] = blocks(root / "docs" / "command_line.md", "toml")
    (tmp_path / "my_box.toml").write_text(cluster_file.text)
    script = GIVEN + re.sub(r"budget_s=\d+", "budget_s=2", block.text)
    places = {"CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(tmp_path)}
    printed_by([sys.executable, "-c", script], root, tmp_path, 400, **places)
