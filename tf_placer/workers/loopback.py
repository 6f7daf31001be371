"""Keeps the servers of local workers, which run whatever they are sent, off the network."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
from collections.abc import Iterator

from tf_placer.compiled_library import Library, compiled
from tf_placer.errors import InputError

OPEN_WORKERS = "TF_PLACER_OPEN_WORKERS"
REMEDY = f"--open_workers or {OPEN_WORKERS}=1 goes on without, on a machine whose network you trust"
_LOOPBACK_INTERFACE = b"lo"
_FOLDER = pathlib.Path(__file__).parent
_LIBRARY = Library(
    name="_tf_placer_loopback",
    purpose="what keeps workers off the network",
    sources=_FOLDER / "cc",
    folder=_FOLDER,
    flags=("-std=c++17", "-O2", "-fPIC", "-shared", "-Wall"),
    prebuilt="TF_PLACER_LOOPBACK_LIBRARY",
    places=("-Wl,--as-needed", "-ldl"),
)


def loopback_library() -> pathlib.Path:
    """The library that a worker preloads so that it listens on the loopback alone, compiled if need be.

    Raises:
      InputError: it cannot be compiled.
    """
    try:
        return compiled(_LIBRARY)
    except InputError as error:
        raise InputError(f"{error}; {REMEDY}") from error


@contextlib.contextmanager
def preloading(library: pathlib.Path | None) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """Yields the environment of a process that preloads ``library`` before all else, and descriptors it must inherit.

    The library goes by its descriptor, because the list of what is preloaded knows no blanks and colons in names.
    """
    if library is None:
        yield dict(os.environ), ()
        return
    descriptor = os.open(library, os.O_RDONLY)
    try:
        others = os.environ.get("LD_PRELOAD", "")
        first = f"/proc/self/fd/{descriptor}"
        yield {**os.environ, "LD_PRELOAD": f"{first}:{others}" if others else first}, (descriptor,)
    finally:
        os.close(descriptor)


def are_workers_open() -> bool:
    """Whether the environment wants workers that listen on every interface.

    Raises:
      InputError: it says neither yes nor no.
    """
    word = os.environ.get(OPEN_WORKERS, "0")
    if word not in ("", "0", "1"):
        raise InputError(f"{OPEN_WORKERS} is {word!r}; give 1 or 0")
    return word == "1"


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Within it, workers that are started have a variable of the environment at this value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def workers_opened(opened: bool) -> contextlib.AbstractContextManager[None]:
    """Within it, workers that are started listen on every interface, if ``opened``."""
    return environment(OPEN_WORKERS, "1") if opened else contextlib.nullcontext()


@contextlib.contextmanager
def own_listeners_confined() -> Iterator[None]:
    """Confines to the loopback what this process begins to listen on within it.

    Who uses the workers' devices as its own has a server of its own for them, and cannot preload anything any more.

    Raises:
      InputError: the system does not let this process do so.
    """
    if are_workers_open():
        yield
        return
    with socket.socket() as trial:
        _confine(trial)
    before = _listeners()
    try:
        yield
    finally:
        for name, descriptor in _listeners().items():
            if name not in before:
                with socket.socket(fileno=os.dup(descriptor)) as listener:
                    _confine(listener)


def _confine(one: socket.socket) -> None:
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK_INTERFACE)
    except OSError as error:
        raise InputError(
            f"this process cannot keep its TensorFlow server off the network: {error.strerror}; Linux 5.7 lets every "
            f"process do so; {REMEDY}"
        ) from error


def _listeners() -> dict[str, int]:
    """Name -> descriptor of the internet sockets that this process listens on."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it may be closed by now, as the listing's own is
            name = os.readlink(f"/proc/self/fd/{number}")
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(number))) as one:
                is_internet = one.family in (socket.AF_INET, socket.AF_INET6)
                if is_internet and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found[name] = int(number)
    return found
