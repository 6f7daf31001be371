"""``--graph``: a file that is none is one line and nothing is written; commands that need a program say so."""

import json

import pytest

from tf_placer.__main__ import run

NODES = [{"name": name, "time_ns": {"GPU": 1}} for name in "ab"]


def told(capsys, *argv):
    """The one line of a command that ends with status 2."""
    assert run([str(text) for text in argv]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps({"nodes": NODES, "edges": []})[:-9], "it is no JSON"),
        (json.dumps({"nodes": NODES, "edges": [{"source": "a", "target": "c"}]}), "which is not there"),
        (json.dumps({"nodes": NODES, "edges": [{"source": "a", "target": "b"}], "x": 1}), "unknown key x"),
        ("a picture", "no layer and no edge"),
    ],
)
def test_a_file_that_is_no_graph_is_one_line_and_nothing_is_written(tmp_path, capsys, content, message):
    file, out = tmp_path / "graph.json", tmp_path / "out"
    file.write_text(content)
    line = told(
        capsys, "place", f"--graph={file}", "--cluster=k40x2", f"--out={out}", "--budget_evaluations=1"
    )
    assert f"--graph={file}" in line and message in line
    assert [path.name for path in tmp_path.iterdir()] == ["graph.json"]


def test_a_plan_of_such_a_graph_cannot_be_explained(tmp_path, capsys):
    plan = {
        "schema_version": 1,
        "fingerprint": 64 * "0",
        "made_for": {"graph": "vgg.txt", "cluster": "k40x2"},
        "devices": {"x": "/device:CPU:0"},
    }
    file = tmp_path / "placement.json"
    file.write_text(json.dumps(plan))
    line = told(capsys, "explain", f"--plan={file}", "--op=x")
    assert "was made for --graph=vgg.txt: this needs a program" in line
