"""SavedModels given to `place`: what is none is refused in one line, and nothing of what is one ever runs."""

import collections
import json
import pathlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import tensorflow as tf

from tests.tf_placer.rewrite.saved_models import several_signatures
from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.command_line import place as placing
from tf_placer.command_line.request import Request
from tf_placer.graph import item, read_graph
from tf_placer.graph.item import Item
from tf_placer.graph.program import Program
from tf_placer.planning.outcome import Outcome

Place = Callable[..., tuple[int, str]]


@pytest.fixture
def place(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Place:
    """Places a SavedModel on a described cluster; gives status and standard error."""

    def placed(model: pathlib.Path, *flags: str) -> tuple[int, str]:
        argv = [
            "place",
            f"--saved_model={model}",
            "--cluster=k40x2",
            "--method=single",
            "--budget_evaluations=2",
        ]
        return run([*argv, f"--out={tmp_path / 'out'}", *flags]), capsys.readouterr().err

    return placed


class Doubling(tf.Module):
    """A SavedModel's signature ``double``."""

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, name="x")])
    def double(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": 2.0 * x}


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    module = Doubling()
    tf.saved_model.save(
        module, str(tmp_path / "model"), signatures={"double": module.double, "twice": module.double}
    )
    return tmp_path / "model"


def assert_refused(answer: tuple[int, str], *expected: str) -> None:
    status, error = answer
    assert status == 2
    assert error.startswith("tf-placer: ") and len(error.splitlines()) == 1, error
    for words in expected:
        assert words in error


def test_a_signature_that_is_not_there(model, place, tmp_path):
    assert_refused(place(model), "no signature 'serving_default'; it has double, twice")
    assert_refused(place(model, "--signature=doubel"), "no signature 'doubel'; it has double, twice")
    assert not (tmp_path / "out").exists()
    assert place(model, "--signature=double") == (0, "")
    (tmp_path / "empty").mkdir()
    assert_refused(
        place(tmp_path / "empty"), "empty/saved_model.pb: No such file or directory; give the folder"
    )


def test_results_are_not_written_into_the_model(model, place):
    for out in (model, model / "placed"):
        assert_refused(
            place(model, "--signature=double", f"--out={out}"), "would be written into --saved_model"
        )
    inner = model.rename(model.parent / "saved_model")
    assert_refused(place(inner, "--signature=double", f"--out={inner.parent}"), "would be written into")
    assert (inner / "saved_model.pb").is_file()


def test_a_second_run_replaces_the_results_of_the_first_and_nothing_else(model, place, tmp_path):
    out = tmp_path / "out"
    assert place(model, "--signature=double") == (0, "")
    first = (out / "saved_model" / "saved_model.pb").read_bytes()
    (out / "notes.txt").write_text("mine")
    (out / ".results.new").mkdir()  # a killed run left it
    (out / ".results.new" / "half").write_text("")
    assert place(model, "--signature=twice", "--seed=5") == (0, "")
    results = [
        "placed_graph.pb", "placement.json", "report.html", "saved_model", "summary.json", "timeline.json",
    ]  # fmt: skip
    written = ["notes.txt", *results]
    assert sorted(path.name for path in out.iterdir()) == written
    assert json.loads((out / "summary.json").read_text())["seed"] == 5
    assert (out / "saved_model" / "saved_model.pb").read_bytes() != first
    assert run(["place", "--workload=dense_small", "--cluster=k40x2", "--method=single", f"--out={out}"]) == 0
    assert sorted(path.name for path in out.iterdir()) == sorted({*written} - {"saved_model"})


def test_brackets_in_a_name_are_no_markup(model, place):
    odd = model.rename(model.parent / "[red]model")
    assert place(odd, "--signature=double", f"--out={model.parent}/a[/b]") == (0, "")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """How often each step on the way from a file to an Item is taken, by its name."""
    calls: collections.Counter[str] = collections.Counter()

    def spy(module: ModuleType, name: str) -> None:
        step = getattr(module, name)

        def counting(*args: object) -> object:
            calls[name] += 1
            return step(*args)

        monkeypatch.setattr(module, name, counting)

    spy(read_graph, "check_graph")
    spy(read_graph, "program_of_saved_model")
    spy(read_graph, "program_of_meta_graph")
    spy(item, "clean")
    return calls


def test_a_saved_model_is_checked_once_and_each_signature_cleaned_up_once(model, place, counted):
    assert place(model, "--signature=double") == (0, "")
    assert counted == {"check_graph": 1, "program_of_saved_model": 1, "clean": 1}
    counted.clear()
    assert place(several_signatures(model.parent).path, "--signature=power,scaled") == (0, "")
    assert counted == {"check_graph": 1, "program_of_saved_model": 2, "clean": 2}


def test_a_pin_may_be_about_one_of_several_signatures(tmp_path, place):
    model = several_signatures(tmp_path).path
    power, scaled = (set(Item.from_saved_model(model, name).index.names) for name in ("power", "scaled"))
    (only_scaled, *_) = sorted(scaled - power)
    assert place(model, "--signature=power,scaled", f"--pin={only_scaled}=GPU:1") == (0, "")
    plan = json.loads((tmp_path / "out/scaled/placement.json").read_text())
    assert plan["devices"][only_scaled].endswith("GPU:1")


def test_nothing_is_written_before_all_signatures_are_placed(tmp_path, place, monkeypatch):
    model = several_signatures(tmp_path).path
    answer = place(model, "--signature=power,scaled", "--pin=decoder=GPU:1")
    assert_refused(answer, "pin 'decoder' matches no op of any signature", "power: '", "scaled: '")
    assert not (tmp_path / "out").exists()
    placed = placing.place

    def fails(request: Request, *others: Any) -> Outcome:
        if request.source.signature == "scaled":
            raise InputError("this one cannot be placed")
        return placed(request, *others)

    monkeypatch.setattr(placing, "place", fails)
    assert_refused(place(model, "--signature=power,scaled"), "this one cannot be placed")
    assert not (tmp_path / "out").exists()


def test_a_meta_graph_is_checked_and_cleaned_up_once(tmp_path, counted):
    graph = Doubling().double.get_concrete_function().graph
    (tmp_path / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    flags = [f"--meta_graph={tmp_path / 'frozen.pb'}", "--fetches=Identity:0", "--cluster=k40x2"]
    assert run(["place", *flags, "--method=single", f"--out={tmp_path / 'out'}"]) == 0
    assert counted == {"check_graph": 1, "program_of_meta_graph": 1, "clean": 1}


class Tripling(tf.Module):
    """Another graph under the name ``double``."""

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, name="x")])
    def double(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x + x + x}


@pytest.mark.parametrize("module", [Doubling, Tripling])
def test_a_model_that_is_saved_anew_during_the_search_is_read_anew(
    module, model, place, tmp_path, monkeypatch
):
    clean = item.clean

    def saved_meanwhile(program: Program) -> Program:
        monkeypatch.setattr(item, "clean", clean)
        one = module()
        tf.saved_model.save(one, str(model), signatures={"double": one.double})
        return clean(program)

    monkeypatch.setattr(item, "clean", saved_meanwhile)
    answer = place(model, "--signature=double")
    written = tmp_path / "out" / "saved_model"
    if module is Tripling:
        assert_refused(answer, "item 'model' has fingerprint")
        assert not written.exists()
    else:
        assert answer == (0, "")
        # What is there now has one signature of ours; what was read had two.
        signatures = read_graph.read_saved_model(written).meta_graph.signature_def
        assert "double" in signatures and "twice" not in signatures


class Effects(tf.Module):
    """Ops that tell when they run, where inference would like to know a value."""

    def __init__(self, file: pathlib.Path) -> None:
        super().__init__()
        self.ran: list[str] = []
        self._file = str(file)

    def _tell(self, value):
        self.ran.append("a function of Python")
        return value

    @tf.function(input_signature=[tf.TensorSpec([6], tf.float32, name="x")])
    def reshaped(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        shape = tf.numpy_function(self._tell, [tf.constant([2, 3])], tf.int32, stateful=False)
        return {"y": tf.reshape(x, tf.ensure_shape(shape, [2]))}

    @tf.function(input_signature=[tf.TensorSpec([6], tf.float32, name="x")])
    def counted(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        tf.py_function(lambda one: self._tell(one) and None, [tf.constant(1)], [])
        tf.print("never")
        with tf.control_dependencies([tf.io.write_file(self._file, "ran")]):
            most = tf.identity(tf.constant(4))
        loop = tf.while_loop(lambda i: i < 3, lambda i: (i + 1,), [0], maximum_iterations=most)
        return {"y": x, "count": loop[0]}


def test_nothing_of_the_model_runs(place, tmp_path):
    module = Effects(tmp_path / "written")
    signatures = {"reshaped": module.reshaped, "counted": module.counted}
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=signatures)
    module.ran.clear()  # TensorFlow's own inference ran one when it was traced
    assert place(tmp_path / "model", "--signature=counted") == (0, "")
    assert place(tmp_path / "model", "--signature=reshaped") == (0, "")
    assert module.ran == []
    assert not (tmp_path / "written").exists()

    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for signature in signatures:
        module.ran.clear()
        loaded.signatures[signature](x=tf.zeros([6]))
        assert module.ran, "the test would not have noticed"
    assert (tmp_path / "written").exists(), "the test would not have noticed"


class Lookup(tf.Module):
    """Words to numbers, by a table that is filled when the model is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def find(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"found": tf.where(self.table.lookup(words) > 0)}


def test_what_no_worker_can_run_is_placed_on_the_word_of_the_simulator(tmp_path, capsys):
    module = Lookup()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.find)
    flags = ["--cluster=local:2", "--method=single", "--budget_evaluations=2", f"--out={tmp_path / 'out'}"]
    assert run(["place", f"--saved_model={tmp_path / 'model'}", *flags]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "No worker can run" in printed and "the simulator's word alone" in printed
    assert "depend on data and are estimates: " in printed
    assert "1 at most as many as its inputs have" in printed
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["estimated_sizes"]["at most as many as its inputs have"] == 1
    assert summary["measured_s"] is None
