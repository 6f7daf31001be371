"""A SavedModel with a placement in it is the same model, whoever loads it; what is damaged is refused."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.logical_devices import outcomes_of
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.saved_model import export_saved_model

CHECKS = (
    "keras_model",
    "several_signatures_a_loop_and_a_side_effect",
    "a_hash_table_with_an_asset",
    "from_tensorflow_1",
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, str]:
    """What ``saved_model_process`` found, in a process that has four logical devices."""
    folder = tmp_path_factory.mktemp("models")
    return outcomes_of("tests.tf_placer.rewrite.saved_model_process", str(folder))


def test_every_kind_is_checked(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_it_answers_as_before(outcomes, check):
    assert outcomes[check] == "ok"


@pytest.fixture
def model(tmp_path) -> Path:
    module = tf.Module()
    module.weights = tf.Variable(tf.ones([3, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def serve(x):
        return {"y": x @ module.weights}

    tf.saved_model.save(module, str(tmp_path / "model"), signatures=serve)
    return tmp_path / "model"


def a_placement(path: Path) -> Placement:
    problem = analytic_problem(Item.from_saved_model(path), Cluster.logical(2))
    return Placement(problem, np.arange(problem.num_units) % 2)


def test_variables_come_from_the_checkpoint(model):
    (variable,) = Item.from_saved_model(model).variables
    assert variable.value.tolist() == [[1.0, 1.0]] * 3


def test_an_unknown_dimension_gets_the_batch_size(model):
    (feed,) = Item.from_saved_model(model, batch_size=7).feeds
    assert feed.shape == (7, 3)


def test_an_unknown_signature_names_those_that_are(model):
    with pytest.raises(InputError, match="no signature 'train'; it has serving_default"):
        Item.from_saved_model(model, "train")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.unlink(), "cannot read .*saved_model.pb: No such file"),
        (lambda file: file.write_bytes(b"\xff" * 100), "saved_model.pb is damaged"),
        (lambda file: file.write_bytes(b""), "has 0 graphs tagged 'serve'"),
    ],
)
def test_a_damaged_model_is_refused_in_one_line(model, damage, message):
    damage(model / "saved_model.pb")
    with pytest.raises(InputError, match=message) as error:
        Item.from_saved_model(model)
    assert "\n" not in str(error.value)


def test_nothing_appears_where_the_export_is_refused(model, tmp_path):
    placement = a_placement(model)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="there is there already"):
        export_saved_model(model, tmp_path / "there", placement)
    with pytest.raises(InputError, match="search a placement for this item"):
        export_saved_model(model, tmp_path / "new", placement, batch_size=5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "there"]
