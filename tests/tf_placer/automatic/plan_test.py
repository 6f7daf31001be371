"""Plans are kept; one that cannot be kept or read costs a search and never ends the work."""

import json

import pytest
import tensorflow as tf

from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.plan import find_plan
from tf_placer.calibration.cache import Cache
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item

CLUSTER = Cluster.logical(2)


@pytest.fixture(scope="module")
def item():
    return Item.from_function(tf.function(lambda x: tf.tanh(x) + tf.sin(x)), tf.ones([4]), name="step")


def config(folder=None):
    return AutoPlaceConfig(cluster=CLUSTER, method="single", budget_s=5.0, cache_dir=folder)


def without(*names):
    return lambda kept: {name: kept[name] for name in kept if name not in names}


def of_another_program(kept):
    plan = json.loads(kept["plan"])
    renamed = {f"sequential_1/{op}": device for op, device in plan["devices"].items()}
    return {**kept, "plan": json.dumps({**plan, "devices": renamed})}


@pytest.mark.parametrize(
    "change", [of_another_program, without("plan"), without("predicted_s"), lambda _: []]
)
def test_a_kept_plan_that_does_not_fit_is_searched_anew(item, tmp_path, caplog, change):
    assert not find_plan(item, CLUSTER, config(tmp_path)).from_cache
    assert find_plan(item, CLUSTER, config(tmp_path)).from_cache and caplog.messages == []
    (file,) = tmp_path.glob("plan-*.json")
    document = json.loads(file.read_text())
    Cache(tmp_path).save(document["key"], change(document["value"]))

    assert not find_plan(item, CLUSTER, config(tmp_path)).from_cache
    (message,) = caplog.messages
    assert f"{file} is damaged" in message
    assert find_plan(item, CLUSTER, config(tmp_path)).from_cache


def test_a_home_that_cannot_be_written_to_is_one_warning(item, tmp_path, caplog, monkeypatch):
    (tmp_path / "home").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for _ in range(2):
        assert not find_plan(item, CLUSTER, config()).from_cache
    (message,) = caplog.messages
    assert "nothing can be kept in" in message
