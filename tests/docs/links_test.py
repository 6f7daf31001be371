"""Links between the pages lead somewhere, the README is short and works, and the interfaces of the design are there."""

import pathlib
import re
import sys

import pytest

from tests.docs.pages import blocks, pages, printed_by, read

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def links_of(page: pathlib.Path) -> list[str]:
    """Targets of a page's links and pictures that are files here, without what follows a ``#``."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)
    found = [target for target in _LINK.findall(text) if not re.match(r"[a-z]+:", target)]
    return [target.partition("#")[0] for target in found if not target.startswith("#")]


def test_links_lead_to_files(root):
    broken = [
        f"{page.relative_to(root)} links to {target}"
        for page in pages(root)
        for target in links_of(page)
        if not (page.parent / target).exists()
    ]
    assert broken == [], "\n".join(broken)


def test_every_page_and_picture_is_reached_from_the_readme(root):
    reached, ahead = set(), [root / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        targets = {page.parent.joinpath(target).absolute() for target in links_of(page)}
        targets = {pathlib.Path(*normal_parts(target)) for target in targets}
        ahead += [target for target in targets - reached if target.suffix == ".md"]
        reached |= targets
    wanted = {*pages(root), *(root / "docs").rglob("*.png")}
    lost = sorted(str(page.relative_to(root)) for page in wanted - reached)
    assert lost == [], "no page that the README leads to has a link to these"


def normal_parts(path: pathlib.Path) -> list[str]:
    """Parts without ``..``; not resolved, because under Bazel files are links into the checkout."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts


def test_headings_that_links_name_are_there(root):
    wrong = []
    for page in pages(root):
        for file, heading in re.findall(r"\]\(([\w/.]*)#([^)\s]+)\)", read(page)):
            target = page.parent / file if file else page
            if heading not in anchors(read(target)):
                wrong.append(f"{page.relative_to(root)} links to #{heading}, which {target.name} lacks")
    assert wrong == [], "\n".join(wrong)


def anchors(text: str) -> list[str]:
    """What links call the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_a_broken_link_is_seen(tmp_path):
    (tmp_path / "README.md").write_text(
        "[a](docs/a.md) ![p](docs/p.png#x) [w](https://example.org) [t](#top)\n```python\nf[a](b)\n```\n"
    )
    assert links_of(tmp_path / "README.md") == ["docs/a.md", "docs/p.png"]
    assert anchors("# A `b`, c\n\n## Two words\n") == ["a-b-c", "two-words"]


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
def test_the_interfaces_are_there(root, tmp_path):
    [block] = blocks(root / PAGE, "python")
    [cluster_file] = blocks(root / "docs" / "command_line.md", "toml")
    (tmp_path / "my_box.toml").write_text(cluster_file.text)
    script = GIVEN + re.sub(r"budget_s=\d+", "budget_s=2", block.text)
    places = {"CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(tmp_path)}
    printed_by([sys.executable, "-c", script], root, tmp_path, 400, **places)


MOST_LINES = 109


def test_the_readme_is_a_front_page(root):
    assert len(read(root / "README.md").splitlines()) <= MOST_LINES


@pytest.mark.slow
def test_the_example_runs(root, tmp_path):
    [example] = blocks(root / "README.md", "python")
    assert "train_step on local" in printed_by(
        [sys.executable, "-c", example.text], root, tmp_path, 400, XDG_CACHE_HOME=str(tmp_path)
    )
