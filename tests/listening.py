"""What a process listens on, as the kernel tells it."""

import contextlib
import ipaddress
import os
import pathlib

_LISTENS = "0A"  # TCP_LISTEN in the kernel's tables


def listening_addresses(pid: int) -> list[str]:
    """The address of each TCP socket that a process listens on; "0.0.0.0" and "::" are every interface's."""
    inodes, found = set(), []
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):  # it is closed meanwhile, or the process has ended
            inodes.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as lines:
            rows = [line.split() for line in lines][1:]
        found += [_address(row[1]) for row in rows if row[3] == _LISTENS and row[9] in inodes]
    return found


def _address(text: str) -> str:
    """From hexadecimal words of four bytes, each in this machine's byte order."""
    digits = text.partition(":")[0]
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
