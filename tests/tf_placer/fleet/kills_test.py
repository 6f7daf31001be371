"""A fleet on this machine, with Ray: actors and the driver are killed at random; nothing is lost or counts twice.

``make test-fleet`` runs it; it needs Ray (``pip install 'tf_placer[fleet]'``).
"""

import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from tests.listening import listening_addresses

pytestmark = [pytest.mark.fleet, pytest.mark.alone]
pytest.importorskip("ray", reason="pip install 'tf_placer[fleet]'")

_PLANS, _DRIVER_KILLS, _ACTOR_KILLS = 200, 2, 5
_DEADLINE_S = 900.0


def started(folder: pathlib.Path, fleet: str, plans: int, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.tf_placer.fleet.driver_process", str(folder), fleet, str(plans)]
    env = {**os.environ, **environment}
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=env)


def descendants(pid: int) -> list[int]:
    """Processes below one, as they are now."""
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        parents.setdefault(int(rest.split()[1]), []).append(int(name.split()[0]))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def command_of(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def records(path: pathlib.Path) -> list[dict]:
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


@pytest.mark.parametrize("actors", [2, 4])
def test_actors_and_the_driver_are_killed_at_random(actors, tmp_path):
    chance, journal = random.Random(actors), tmp_path / "measured.jsonl"
    begin_s, killed_actors, killed_drivers, heard = time.monotonic(), 0, 0, set()
    driver = started(tmp_path, f"local:{actors}", _PLANS)
    try:
        while driver.poll() is None or killed_drivers < _DRIVER_KILLS:
            assert time.monotonic() - begin_s < _DEADLINE_S, (tmp_path / "driver.log").read_text()[-3000:]
            time.sleep(0.2)
            done = len(records(journal))
            living = [pid for pid in descendants(driver.pid) if command_of(pid).startswith("ray::Machine")]
            for pid in (driver.pid, *descendants(driver.pid)):
                heard |= set(listening_addresses(pid))
            next_driver = (killed_drivers + 1) * _PLANS // (_DRIVER_KILLS + 1)
            next_actor = (killed_actors + 1) * _PLANS // (_ACTOR_KILLS + 2)
            if killed_drivers < _DRIVER_KILLS and done >= next_driver:
                os.kill(driver.pid, signal.SIGKILL)
                driver.wait()
                killed_drivers += 1
                driver = started(tmp_path, f"local:{actors}", _PLANS)
            elif living and done >= next_actor and driver.poll() is None:
                os.kill(chance.choice(living), signal.SIGKILL)
                killed_actors += 1
            elif driver.poll():
                break
        assert driver.returncode == 0, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        driver.kill()
        driver.wait()
    told = json.loads((tmp_path / "done.json").read_text())
    kept = [record["placement"] for record in records(journal)]
    lost, double = len(set(told["digests"]) - set(kept)), len(kept) - len(set(kept))
    print(
        f"\n{actors} actors, {_PLANS} plans: {killed_actors} actors and {killed_drivers} drivers killed, {lost} lost, "
        f"{double} double, {told['status'].count(0)} OK, in {time.monotonic() - begin_s:.0f} s; the last "
        f"driver found {told['kept']} in its journal, sent {told['sent']}, lost {told['lost']} calls, ignored "
        f"{told['doubles']} answers"
    )
    assert (lost, double) == (0, 0)
    assert killed_drivers == _DRIVER_KILLS and killed_actors >= _ACTOR_KILLS
    assert set(told["status"]) == {0}
    assert heard and heard <= {"127.0.0.1", "::ffff:7f00:1"}, f"listens on {heard}"
    assert descendants(driver.pid) == []


def test_a_cluster_that_runs_is_joined_with_its_token_and_with_no_other(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("token", "other"):
        (tmp_path / name).write_text(secrets.token_hex(32))
    ray = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token"),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the loopback for this machine's address
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    folder = tempfile.mkdtemp(prefix="tfp-", dir="/tmp")  # names of sockets are short
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}", "--num-cpus=1"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *head, "--block"]
    with (tmp_path / "head.log").open("ab") as log:
        node = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=os.environ | ray)
    try:
        begin_s = time.monotonic()
        while "Ray runtime started" not in (tmp_path / "head.log").read_text():
            assert time.monotonic() - begin_s < _DEADLINE_S / 10 and node.poll() is None
            time.sleep(0.5)
        for token, status in (("other", 1), ("token", 0)):
            environment = ray | {"RAY_AUTH_TOKEN_PATH": str(tmp_path / token)}
            driver = started(tmp_path, f"127.0.0.1:{port}", 20, **environment)
            assert driver.wait(_DEADLINE_S) == status, (tmp_path / "driver.log").read_text()[-3000:]
            assert (tmp_path / "done.json").exists() == (status == 0)
        assert "UnreachableFleet: --fleet=127.0.0.1:" in (tmp_path / "driver.log").read_text()
        told = json.loads((tmp_path / "done.json").read_text())
        assert told["actors"] == 1 and told["status"] == [0] * 20
    finally:
        node.send_signal(signal.SIGTERM)
        node.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
