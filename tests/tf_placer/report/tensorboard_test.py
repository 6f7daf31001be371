"""A TensorBoard run, read back with what ``tensorboard --logdir`` reads it with."""

import csv
import json

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG

from tf_placer.__main__ import run
from tf_placer.planning.outcome import Clock
from tf_placer.report.files import BY_EVALUATIONS, BY_MILLISECONDS, STEP_MS

METHODS = ("single", "random", "local_search")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of a comparison, and its results."""
    folder = tmp_path_factory.mktemp("runs")
    logs, out = folder / "logs", folder / "out"
    (logs / "random").mkdir(parents=True)
    (logs / "random" / "events.out.tfevents.1.older").write_bytes(b"")
    (logs / "notes.txt").write_text("mine")
    argv = ["compare", "--workload=dense_small", "--cluster=k40x2", f"--methods={','.join(METHODS)}"]
    assert run([*argv, "--budget_evaluations=256", f"--out={out}", f"--tensorboard={logs}"]) == 0
    return logs, out


def read(folder):
    """All of a run."""
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    return accumulator


def test_there_is_a_run_for_each_method_and_nothing_of_an_earlier_search(runs):
    logs, _ = runs
    assert sorted(path.name for path in logs.iterdir()) == sorted([*METHODS, "plan", "notes.txt"])
    assert len([*(logs / "random").iterdir()]) == 2  # curves and settings


@pytest.mark.parametrize("method", METHODS)
def test_curves_end_where_the_report_says(runs, method):
    logs, out = runs
    accumulator = read(logs / method)
    tags = {f"{axis}/{tag}" for axis in (BY_EVALUATIONS, BY_MILLISECONDS) for tag in ("best_ms", "mean_ms")}
    assert set(accumulator.Tags()["tensors"]) == tags | {SESSION_START_INFO_TAG, STEP_MS[Clock.SIMULATED]}
    rows = {row["method"]: row for row in csv.DictReader((out / "compare.csv").read_text().splitlines())}
    for axis, column, unit in ((BY_EVALUATIONS, "evaluations", 1), (BY_MILLISECONDS, "search_s", 1e3)):
        points = accumulator.Tensors(f"{axis}/best_ms")
        best_ms = [float(tf.make_ndarray(point.tensor_proto)) for point in points]
        assert best_ms[-1] == pytest.approx(1e3 * float(rows[method]["simulated_s"]))
        assert best_ms == sorted(best_ms, reverse=True)
        steps = [point.step for point in points]
        assert steps == sorted(steps) and steps[-1] <= unit * float(rows[method][column]) + 1
    if method == "single":
        return
    points = accumulator.Tensors(f"{BY_EVALUATIONS}/best_ms")
    assert points[-1].step == int(rows[method]["evaluations"]) == 256
    took_ms = accumulator.Tensors(f"{BY_MILLISECONDS}/best_ms")[-1].step
    apart_s = points[-1].wall_time - points[0].wall_time
    assert apart_s <= took_ms / 1e3 + 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_settings_are_hyperparameters_and_the_step_is_their_metric(runs, method):
    logs, out = runs
    told = json.loads((out / "summary.json").read_text())
    accumulator = read(logs / method)
    content = accumulator.SummaryMetadata(SESSION_START_INFO_TAG).plugin_data.content
    info = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    found = {name: getattr(value, value.WhichOneof("kind")) for name, value in info.hparams.items()}
    settings = {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in told["settings"][method].items()
    }
    assert found == {**settings, "method": method, "seed": told["seed"], "cluster": told["cluster"]}
    (point,) = accumulator.Tensors(STEP_MS[Clock.SIMULATED])
    times_s = {**told["baselines"], told["written"]: told["runtime_s"]}
    assert float(tf.make_ndarray(point.tensor_proto)) == pytest.approx(1e3 * times_s[method])


def test_the_plan_its_layers_and_its_graph(runs):
    logs, out = runs
    accumulator = read(logs / "plan")

    def text(tag):
        return tf.make_ndarray(accumulator.Tensors(tag)[0].tensor_proto).item().decode()

    assert json.loads(text("summary")) == json.loads((out / "summary.json").read_text())
    devices = json.loads((out / "placement.json").read_text())["devices"]
    assert dict(line.split() for line in text("plan").splitlines()) == devices
    header, _, *rows = text("layers").splitlines()
    assert header.startswith("| layer | on | ops |") and len(rows) > 1
    ops = [int(row.split("|")[3]) for row in rows if not row.startswith("| –")]  # noqa: RUF001 - outermost layers
    assert sum(ops) == len(devices)
    graph = tf.compat.v1.GraphDef.FromString((out / "placed_graph.pb").read_bytes())
    placed = {node.name: node.device for node in accumulator.Graph().node}
    assert placed == {node.name: node.device for node in graph.node}
    assert set(placed.values()) == set(devices.values())


@pytest.mark.medium
def test_a_full_disk_loses_no_result(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tf_placer.command_line.run_command.write_tensorboard", full)
    argv = [
        "--workload=dense_small",
        "--cluster=k40x2",
        "--budget_evaluations=8",
        f"--tensorboard={tmp_path / 'logs'}",
    ]
    for command in (["place", "--method=random"], ["compare", "--methods=random"]):
        out = tmp_path / command[0]
        with pytest.raises(OSError, match="No space left"):
            run([*command, *argv, f"--out={out}"])
        assert json.loads((out / "summary.json").read_text())["runtime_s"] > 0
        assert (out / "placement.json").is_file()


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_search(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    argv = ["place", "--workload=dense_small", "--cluster=k40x2", f"--out={tmp_path / 'out'}"]
    assert run([*argv, f"--tensorboard={tmp_path / 'file'}"]) == 2
    assert "--tensorboard=" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
