"""`place` tries the batch in parts, writes the faster form, and reads its plan again."""

import json
import pathlib
import warnings

import keras
import pytest

from tests.tf_placer.command_line.commands import devices_in, printed_by, written
from tf_placer.__main__ import run
from tf_placer.planning import forms
from tf_placer.transform.split import SplitProgram

SMALL = ["--workload=two_towers", "--cluster=p100x2", "--method=local_search", "--budget_evaluations=400"]


def summary_of(tmp_path: pathlib.Path, *flags: str) -> dict:
    assert run(["place", *SMALL, f"--out={tmp_path / 'out'}", *flags]) == 0
    return written(tmp_path / "out")


@pytest.mark.medium
def test_the_faster_form_is_written(tmp_path):
    told = summary_of(tmp_path)
    times = {**told["baselines"], told["written"]: told["runtime_s"]}
    assert {"data_parallel", "split", "local_search"} <= times.keys()
    assert told["runtime_s"] == min(times.values())
    assert times["split"] <= times["data_parallel"]
    assert (told["parts"] == 2) == (told["written"] in ("split", "data_parallel"))
    assert told["data_parallel"]["simulated_s"] == times["data_parallel"]  # it is a plan, not a formula
    assert {form["parts"] for form in told["forms"]} == {1, 2}
    assert told["lower_bound_s"] == told["forms"][0]["lower_bound_s"]
    assert told["forms"][0]["parts"] == told["parts"] == told["parts_of"][told["written"]]
    parts_of = {"local_search": 1, "data_parallel": 2, "split": 2}
    assert {name: told["parts_of"][name] for name in parts_of} == parts_of


@pytest.mark.medium
@pytest.mark.parametrize("parts", ["1", "4"])
def test_so_many_parts_as_are_asked_for(parts, tmp_path):
    told = summary_of(tmp_path, f"--parts={parts}")
    assert told["parts"] == int(parts) and "split" not in told["baselines"]
    devices = devices_in(tmp_path / "out")
    assert any(name.startswith("part_3/") for name in devices) == (parts == "4")
    op = next(name for name in devices if name.endswith("MatMul"))
    assert op in printed_by("explain", f"--plan={tmp_path / 'out' / 'placement.json'}", f"--op={op}")


SCRIPT = """
import tensorflow as tf
weight = tf.Variable(tf.ones([4, 4]))
step = tf.function(lambda x: tf.reduce_mean(tf.nn.relu(x @ weight)))
x = tf.ones([8, 4])
"""
DEVICES = ["--cluster=p100x2", "--method=local_search", "--budget_evaluations=60"]


def test_a_script_is_tried_in_parts(tmp_path):
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT)
    given = ["place", f"--script={script}:step", "--args=x", *DEVICES, f"--out={out}"]
    printed_by(*given)
    told = written(out)
    assert {"data_parallel", "split"} & {*told["baselines"], told["written"]}
    printed_by(*given, "--parts=2")
    assert written(out, "placement")["split"]["parts"] == 2


@pytest.mark.medium
def test_a_plan_says_how_many_parts_it_is_of(tmp_path, capsys):
    """Also one that does not say for which flags it was made."""
    wanted = summary_of(tmp_path, "--parts=3", "--batch_statistics=part")
    file, plan = tmp_path / "out" / "placement.json", written(tmp_path / "out", "placement")
    del plan["made_for"]
    file.write_text(json.dumps(plan))
    program = ["--workload=two_towers", "--cluster=p100x2"]
    given = ["place", *program, f"--plan={file}", "--budget_evaluations=4", f"--out={tmp_path / 'again'}"]
    printed_by(*given)
    told, again = written(tmp_path / "again"), written(tmp_path / "again", "placement")
    assert (told["parts"], told["runtime_s"]) == (3, wanted["runtime_s"])
    assert again["split"] == plan["split"] and again["devices"] == plan["devices"]
    op = next(name for name in plan["devices"] if name.startswith("part_2/") and name.endswith("MatMul"))
    printed_by("explain", *program, f"--plan={file}", f"--op={op}")
    assert run([*given, "--parts=2"]) == 2
    assert "was made for another graph" in capsys.readouterr().err


def test_a_saved_model_is_split_where_that_is_asked_for(tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    keras.Sequential([keras.Input([4]), keras.layers.Dense(4, "relu")]).export(model, verbose=False)
    given = ["place", f"--saved_model={model}", "--batch_size=8", *DEVICES, f"--out={out}"]
    printed_by(*given)
    assert "split" not in written(out, "placement"), "it serves any batch"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what reads the same variables runs unplaced
        printed_by(*given, "--parts=2")
    split = written(out, "placement")["split"]
    assert split.pop("fingerprint")
    assert split == {"batch": 8, "parts": 2, "batch_statistics": "whole"}
    assert (out / "saved_model").is_dir()


@pytest.mark.medium
def test_ops_that_are_faster_whole_are_in_the_plan_and_read_again(tmp_path, capsys, monkeypatch):
    """What is kept whole is fixed here: of small programs the estimates keep nothing."""
    kept: list[str] = []

    def last_products(split: SplitProgram, *_: object) -> frozenset[str]:
        kept[:] = [name for name in split.split_ops if "MatMul" in name][-3:]
        return frozenset(kept)

    monkeypatch.setattr(forms, "faster_whole", last_products)
    told = summary_of(tmp_path, "--workload=transformer_small")
    assert len(kept) == 3 and told["runtime_s"] <= told["baselines"]["data_parallel"]
    sizes = {form["ops"] for form in told["forms"] if form["parts"] == 2}
    assert len(sizes) == 2, "data parallelism is a plan of the form with all in parts"
    plan = written(tmp_path / "out", "placement")
    assert told["written"] == "split" and len(plan["split"]["kept_whole"]) == 3
    assert set(kept) < plan["devices"].keys()
    assert "it is faster whole" in capsys.readouterr().out
    assert kept[0] in printed_by(
        "explain", f"--plan={tmp_path / 'out' / 'placement.json'}", f"--op={kept[0]}"
    )
