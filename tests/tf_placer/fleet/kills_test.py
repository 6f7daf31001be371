"""A fleet on this machine, with Ray: actors and the driver are killed at random; nothing is lost or counts twice.

``make test-fleet`` runs it; it needs Ray (``pip install 'tf_placer[fleet]'``).
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.fleet, pytest.mark.alone]
pytest.importorskip("ray", reason="pip install 'tf_placer[fleet]'")

_PLANS, _DRIVER_KILLS, _ACTOR_KILLS = 200, 2, 5
_DEADLINE_S = 900.0
_NAME = "ray::Machine"


def started(folder: pathlib.Path, actors: int, plans: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "tests.tf_placer.fleet.driver_process",
        str(folder),
        str(actors),
        str(plans),
    ]
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


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


def actors_of(driver: subprocess.Popen[bytes]) -> list[int]:
    return [pid for pid in descendants(driver.pid) if command_of(pid).startswith(_NAME)]


def records(path: pathlib.Path) -> list[dict]:
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def listeners(pids: set[int]) -> set[str]:
    """Addresses, in hexadecimal, that processes listen on."""
    sockets = set()
    for pid in pids:
        for entry in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(os.readlink(entry))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].rpartition(":")[0])
    return found


@pytest.mark.parametrize("actors", [2, 4])
def test_actors_and_the_driver_are_killed_at_random(actors: int, tmp_path: pathlib.Path) -> None:
    chance, journal = random.Random(actors), tmp_path / "measured.jsonl"
    begin_s, killed_actors, killed_drivers, heard = time.monotonic(), 0, 0, set()
    driver = started(tmp_path, actors, _PLANS)
    try:
        while driver.poll() is None or killed_drivers < _DRIVER_KILLS:
            assert time.monotonic() - begin_s < _DEADLINE_S, (tmp_path / "driver.log").read_text()[-3000:]
            time.sleep(0.2)
            done, living = len(records(journal)), actors_of(driver)
            heard |= listeners({driver.pid, *descendants(driver.pid)})
            next_driver = (killed_drivers + 1) * _PLANS // (_DRIVER_KILLS + 1)
            next_actor = (killed_actors + 1) * _PLANS // (_ACTOR_KILLS + 2)
            if killed_drivers < _DRIVER_KILLS and done >= next_driver:
                os.kill(driver.pid, signal.SIGKILL)
                driver.wait()
                killed_drivers += 1
                driver = started(tmp_path, actors, _PLANS)
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
    assert heard and all(address.endswith("0100007F") for address in heard), f"listens on {heard}"
    assert descendants(driver.pid) == []
