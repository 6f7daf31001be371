"""What a process listens on, as the kernel tells it."""

import ipaddress
import os

_LISTENS = "0A"  # TCP_LISTEN in the kernel's tables


def listening_addresses(pid: int) -> list[str]:
    """The address of each TCP socket that a process listens on; "0.0.0.0" and "::" are every interface's."""
    inodes = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
            rows = [line.split() for line in lines][1:]
        found += [_address(row[1]) for row in rows if row[3] == _LISTENS and row[9] in inodes]
    return found


def _address(text: str) -> str:
    """From hexadecimal words of four bytes, each in this machine's byte order."""
    digits = text.partition(":")[0]
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
