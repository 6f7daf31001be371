"""Addresses of fleets, and what is wrong with one in one line that ends a command with status 2."""

import io
import socket

import pytest
import rich.console

from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.fleet import address as module
from tf_placer.fleet.address import FleetAddress, why_no_ray
from tf_placer.fleet.connection import open_fleet


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local:2", FleetAddress(actors=2)),
        ("10.0.0.1:6379", FleetAddress("10.0.0.1", 6379)),
        ("head-7.ray:1", FleetAddress("head-7.ray", 1)),
        ("[::1]:65535", FleetAddress("[::1]", 65535)),
    ],
)
def test_an_address_is_read_and_written(text, expected):
    assert FleetAddress.parse(text) == expected
    assert str(expected) == text
    assert expected.is_local == text.startswith("local")


@pytest.fixture
def ray_2_60(monkeypatch):
    monkeypatch.setattr(module, "ray_version", lambda: "2.60.0")


def error_of(capsys, *given):
    words = ["place", "--workload=dense_small", "--out=out/never", *given]
    assert run(words, rich.console.Console(file=io.StringIO())) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return error


@pytest.mark.parametrize(
    ("version", "why"), [("", "Ray is not installed"), ("2.51.1", "Ray 2.51.1 knows no token")]
)
def test_without_ray_it_says_what_to_install(monkeypatch, capsys, version, why):
    monkeypatch.setattr(module, "ray_version", lambda: version)
    error = error_of(capsys, "--fleet=local:2")
    assert error.startswith(f"tf-placer: --fleet=local:2: {why}")
    assert error.endswith("pip install 'tf_placer[fleet]'\n")


def test_versions_are_numbers(monkeypatch):
    for version, is_good in (("2.52.0", True), ("2.9.3", False), ("3.0.0rc1", True), ("2.100", True)):
        monkeypatch.setattr(module, "ray_version", lambda version=version: version)
        assert (why_no_ray() == "") == is_good, version


def test_a_fleet_that_cannot_be_reached(ray_2_60, capsys):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        error = error_of(capsys, f"--fleet=127.0.0.1:{unused.getsockname()[1]}")
    assert "nothing answers there" in error and "ray start --head" in error


def test_a_described_cluster(ray_2_60, capsys):
    error = error_of(capsys, "--fleet=local:2", "--cluster=k40x2")
    assert "--fleet=local:2" in error and "--cluster=k40x2 describes others; leave --cluster out" in error


@pytest.mark.parametrize("other", ["--plan=FILE", "--objective=memory", "--op_library=FILE"])
def test_what_does_not_go_with_a_fleet(ray_2_60, capsys, tmp_path, monkeypatch, other):
    monkeypatch.chdir(tmp_path)
    if "--plan" in other:
        (tmp_path / "FILE").write_text("{}")
    given = ["--fleet=local:2", "--cluster=local:1", other]
    assert other.partition("=")[0] in error_of(capsys, *given)


def test_a_library_call_is_told_the_same(ray_2_60):
    with pytest.raises(InputError, match="cluster 'k40x2' is described; give --cluster=local"):
        open_fleet(FleetAddress(actors=1), Cluster.preset("k40x2"))


def test_a_cluster_that_runs_needs_a_token(ray_2_60, monkeypatch, tmp_path):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        InputError, match=r"there is no token for it; put that of the cluster into ~/.ray/auth_token"
    ):
        open_fleet(FleetAddress("127.0.0.1", 1), Cluster("c", Cluster.logical(1).devices, (), kind="local"))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
