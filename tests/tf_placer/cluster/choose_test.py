"""A word for a cluster means the same on the command line and to auto_place."""

import os
import pathlib

import pytest

import tf_placer
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.base.arguments import InputError
from tf_placer.cluster import local
from tf_placer.cluster.cluster import choose_cluster, local_cores


def test_presets_and_files(tmp_path: pathlib.Path) -> None:
    assert choose_cluster("p100x2", "here").fingerprint() == tf_placer.Cluster.preset("p100x2").fingerprint()
    file = tmp_path / "box.toml"
    file.write_text(tf_placer.Cluster.preset("k40x2").to_toml())
    assert choose_cluster(str(file), "here").num_devices == 3


def test_local_workers() -> None:
    assert local_cores("local", "here") is None
    assert local_cores("p100x2", "here") is None
    assert local_cores("local:1", "here") == 1
    assert choose_cluster("local:1", "here").num_devices == 1


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("local:two", "here: 'two' is no number of CPU workers; write local:2"),
        ("local:", "here: '' is no number of CPU workers"),
        ("local:0", "here: cores=0, but this process may use"),
        (f"local:{'9' * 9000}", "here: "),
        ("p100x3", "here: unknown cluster preset 'p100x3'; did you mean"),
        ("nowhere.toml", "here: cannot read the cluster file"),
        ("localhost", "here: unknown cluster preset 'localhost'"),
    ],
)
def test_what_is_refused_says_how_it_was_given(word: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        choose_cluster(word, "here")
    assert str(error.value).startswith(message)


def test_auto_place_takes_the_words_of_the_command_line(tmp_path: pathlib.Path) -> None:
    servers = (
        tf_placer.Cluster.preset("p100x1").to_toml().replace('type = "', 'address = "127.0.0.1:1"\ntype = "')
    )
    file = tmp_path / "servers.toml"
    file.write_text(servers)
    assert AutoPlaceConfig(cluster="local:1").chosen_cluster().num_devices == 1
    assert AutoPlaceConfig(cluster=str(file)).chosen_cluster().kind == "remote"


def test_auto_place_probes_nothing_before_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_run_probe", None)
    for word in ("local", f"local:{len(os.sched_getaffinity(0))}"):
        assert AutoPlaceConfig(cluster=word).cluster == word
