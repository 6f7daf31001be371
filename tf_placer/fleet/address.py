"""Address of a fleet; checks of address and Ray that load neither TensorFlow nor Ray."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import socket

from tf_placer.base.arguments import InputError

LOCAL = "local"
INSTALL = "pip install 'tf_placer[fleet]'"
LEAST_VERSION = (2, 52)  # of Ray; older clusters ask for no token
MOST_LOCAL = 64
_ANSWER_S = 10.0
_GIVE = "give HOST:PORT of a Ray cluster's head, or local:N for N actors on this machine"
_HOST_PORT = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})")


@dataclasses.dataclass(frozen=True)
class FleetAddress:
    """Address of a running Ray cluster, or number of actors to start on this machine."""

    host: str = ""  # of the head of a running cluster
    port: int = 0
    actors: int = 0  # on this machine; 0 for a running cluster, which has one for each of its machines

    @property
    def is_local(self) -> bool:
        """True if the fleet is started on this machine, for this process."""
        return self.actors > 0

    def __str__(self) -> str:
        return f"{LOCAL}:{self.actors}" if self.is_local else f"{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> FleetAddress:
        """Address of a text, ``"local:2"`` or ``"10.0.0.1:6379"``; InputError for another one."""
        word, _, count = text.partition(":")
        if word == LOCAL:
            if not (count.isascii() and count.isdigit() and 1 <= int(count) <= MOST_LOCAL):
                raise InputError(
                    f"--fleet={text}: {count!r} is no number of actors from 1 to {MOST_LOCAL}; write local:2, say"
                )
            return FleetAddress(actors=int(count))
        match = _HOST_PORT.fullmatch(text)
        if match is None or not 0 < int(match["port"]) < 2**16:
            raise InputError(f"--fleet={text} is no address of a fleet; {_GIVE}")
        return FleetAddress(match["host"], int(match["port"]))


def check_reachable(address: FleetAddress) -> None:
    """Raises InputError where nothing listens at the address of a running cluster."""
    if address.is_local:
        return
    try:
        socket.create_connection((address.host.strip("[]"), address.port), _ANSWER_S).close()
    except OSError as error:
        raise InputError(
            f"--fleet={address}: nothing answers there within {_ANSWER_S:g} s ({error}); start it with "
            "`ray start --head`, or correct the address"
        ) from error


def ray_version() -> str:
    """Installed version of Ray; "" without Ray."""
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return ""


def why_no_ray() -> str:
    """Reason why Ray cannot be used, with the remedy, or ""."""
    version = ray_version()
    if not version:
        return f"Ray is not installed; {INSTALL}"
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        return f"Ray {version} knows no token, Ray {least} does; {INSTALL}"
    return ""


def check_ray(said: str) -> None:
    """Raises InputError, which begins with ``said``, if Ray is missing or too old."""
    if why := why_no_ray():
        raise InputError(f"{said}: {why}")
