"""Damage to the bytes of a file, whatever its format."""

import random


def damaged(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A damaged copy, and what was done to it."""
    change = rng.choice((_flip, _truncate, _cut, _repeat, _overwrite, _insert))
    return change(data, rng), change.__name__.strip("_")


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _cut(data: bytes, rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return data[:begin] + data[end:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return data[:end] + data[begin:end] + data[end:]


def _overwrite(data: bytes, rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return data[:begin] + bytes([rng.choice((0, 0xFF, 0x80))]) * (end - begin) + data[end:]


def _insert(data: bytes, rng: random.Random) -> bytes:
    begin, _ = _span(data, rng)
    return data[:begin] + rng.randbytes(rng.randrange(1, 64)) + data[begin:]


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.choice((1, 4, 16, 256)))
