"""Connection to a fleet: a Ray cluster of this process, on the loopback, or a running one with an actor a machine."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from tf_placer.base.arguments import InputError, told
from tf_placer.cluster.cluster import Cluster
from tf_placer.fleet.address import FleetAddress, check_ray, check_reachable
from tf_placer.fleet.fleet import Fleet, FleetConfig, UnreachableFleet
from tf_placer.fleet.machine import Machine, machine_class, software

_STORE_BYTES = 2**30  # of shared memory, at most: it holds programs
_MODE, _TOKEN, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
# Without clusters on the network Ray takes the loopback for this machine's address: all of its processes listen there.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}  # no reports on usage
_FULL_PRIORITY = {"RAY_worker_niceness": "0"}  # Ray lowers it by default, which would distort measured times


def open_fleet(address: FleetAddress, cluster: Cluster, config: FleetConfig = FleetConfig()) -> Fleet:
    """Starts or joins a Ray cluster, and waits until its machines have answered.

    A fleet that is started here listens on the loopback only and asks for a token, which is made for this process, in a
    file that only its user can read. A running cluster must ask for one, too (``RAY_AUTH_MODE=token``). Each actor has
    a whole machine of a running cluster to itself. No dashboard is started.

    The cluster has the devices of the plans; every machine must have the same.

    Raises:
      InputError: Ray is missing or too old, the cluster is not local, there is no token, or a machine has other
        versions or devices.
      UnreachableFleet: the cluster cannot be joined.
    """
    flag = f"--fleet={address}"
    check_ray(flag)
    if cluster.kind != "local":
        raise InputError(
            f"{flag} measures on the devices of its machines, and cluster {cluster.name!r} is {cluster.kind}; give "
            "--cluster=local"
        )
    os.environ.update(_QUIET)
    if address.is_local:
        os.environ.update(_LOOPBACK | _FULL_PRIORITY)
        os.environ.update({_MODE: "token", _TOKEN_FILE: str(_own_folder() / "token")})
        os.environ.pop(_TOKEN, None)
        ray: Any = importlib.import_module("ray")
        ray.init(
            num_cpus=address.actors,
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=str(_own_folder()),
        )
    else:
        os.environ.setdefault(_MODE, "token")
        token = os.environ.get(_TOKEN) or os.environ.get(_TOKEN_FILE)
        has_token = token or (pathlib.Path.home() / ".ray" / "auth_token").is_file()
        if os.environ[_MODE] == "token" and not has_token:
            raise InputError(
                f"{flag}: there is no token for it; put that of the cluster into ~/.ray/auth_token, or set "
                f"{_TOKEN_FILE}"
            )
        check_reachable(address)
        ray = importlib.import_module("ray")
        try:
            ray.init(address=str(address), log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
            raise UnreachableFleet(
                f"{flag}: Ray cannot join the cluster ({told(error)}); run this on one of its machines, with its token "
                "and its version of Ray"
            ) from error
    try:
        cores = None if any(device.type == "GPU" for device in cluster.devices) else cluster.num_devices
        expected = {"software": software(), "machines": machine_class(cluster)}
        handles = dict(_actors(ray, address, cores, config))
        fleet = Fleet(ray, handles, expected, config, ray.shutdown)
        fleet.start()
    except UnreachableFleet as error:
        ray.shutdown()
        raise UnreachableFleet(f"{flag}: {error}") from None
    except BaseException:
        ray.shutdown()
        raise
    return fleet


@functools.cache
def _own_folder() -> pathlib.Path:
    """Folder for Ray's files in this process, with a token that only this user can read.

    Always in /tmp, because names of sockets have room for a hundred letters. Folders of this user's killed processes
    are removed.
    """
    for old in pathlib.Path("/tmp").glob("tfp-*-*"):
        is_ours = old.lstat().st_uid == os.getuid()
        if is_ours and not pathlib.Path("/proc", old.name.split("-")[1]).exists():
            shutil.rmtree(old, ignore_errors=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"tfp-{os.getpid()}-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    descriptor = os.open(folder / "token", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    return folder


def _actors(
    ray: Any, address: FleetAddress, cores: int | None, config: FleetConfig
) -> Iterator[tuple[str, Any]]:
    """Name and actor: the requested number on this machine, or one for each machine with all its cores and GPUs."""
    kind = ray.remote(Machine)
    options = {"max_restarts": config.max_restarts, "max_task_retries": 0}
    if address.is_local:
        for number in range(1, address.actors + 1):
            yield f"actor {number}", kind.options(num_cpus=1, **options).remote(cores)
        return
    scheduling = importlib.import_module("ray.util.scheduling_strategies")
    for node in ray.nodes():
        resources = node["Resources"]
        if node["Alive"] and resources.get("CPU", 0):
            strategy = scheduling.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            whole = {"num_cpus": resources["CPU"], "num_gpus": resources.get("GPU", 0)}
            actor = kind.options(scheduling_strategy=strategy, **whole, **options)
            yield f"machine {node['NodeManagerHostname']}", actor.remote(cores)
