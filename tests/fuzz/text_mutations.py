"""Damage to plans (JSON) and cluster files (TOML) that a parser still reads, mostly."""

import json
import random
import re
from typing import Any

DEPTHS = (3, 500, 100_000)


def damage_plan(text: str, rng: random.Random) -> tuple[str, str]:
    """A changed plan, and what was changed."""
    plan = json.loads(text)
    key = rng.choice(sorted(plan))
    decided = plan[rng.choice(("devices", "devices", "priorities", "clusters"))]
    op = rng.choice(sorted(decided))
    how = rng.randrange(10)
    if how == 0:
        del plan[key]
    elif how == 1:
        plan[key] = _json_value(rng)
    elif how == 2:
        del decided[op]
    elif how == 3:
        decided[op] = _json_value(rng)
    elif how == 4:
        others = ("GPU:0", "/device:GPU:99", "", "ü", "\ud800", 2**31, -(2**31))
        decided[op] = rng.choice((*decided.values(), *others))
    elif how == 5:
        decided[rng.choice(("", "more", "\ud800", op.upper()))] = decided[op]
    elif how == 6:
        for name in decided:
            decided[name] = rng.choice(tuple(decided.values()))
    elif how == 7:
        plan = rng.choice((decided, [plan], _json_value(rng)))
    elif how == 8:
        version = f'"schema_version": {"9" * rng.choice((1, 5000))}'
        return text.replace('"schema_version": 2', version), "a number"
    else:
        depth = rng.choice(DEPTHS)
        deep = f'"deep": {"[" * depth}{"]" * depth}, "devices": '
        return text.replace('"devices": ', deep), f"{depth} brackets"
    return json.dumps(plan), f"change {how} of {key!r}, {op!r}"


def _json_value(rng: random.Random) -> Any:
    return rng.choice(
        (None, True, 0, 1, 2, -1, 1.5, float("nan"), float("inf"), 10**400, "", "1", "ü", [], {}, [[1]])
    )


_WORDS = (
    "0 -1 1 1.5 1e400 -0.0 inf -inf nan 9223372036854775807 9223372036854775808 1e18 1e300 1e-300 5e-324 "
    'true "" "x" "GPU:7" "GPU:٣" "CPU:0" "[/red]" "ü😀" [] ["GPU:0"]'
)
VALUES = (
    *_WORDS.split(),
    *('["GPU:0", "GPU:0"]', "[1]", "{}", "{ a = 1 }", "1979-05-27", "07:32:00", "'''x\ny'''"),
    *("9" * 5000, "0x" + "f" * 5000, "[0x" + "f" * 5000 + "]", '"' + "x" * 10_000 + '"'),
    '"GPU:99999999999999999999"',
)


def damage_cluster(text: str, rng: random.Random) -> tuple[str, str]:
    """A changed cluster file, and what was changed."""
    lines = text.splitlines()
    numbers = [number for number, line in enumerate(lines) if re.match(r"\w+\s*=", line)]
    number, how = rng.choice(numbers), rng.randrange(9)
    key = lines[number].partition("=")[0].strip()
    if how < 4:
        value = rng.choice(VALUES)
        lines[number] = f"{key} = {value}"
        return "\n".join(lines), f"{key} = {value[:30]}"
    if how == 4:
        del lines[number]
    elif how == 5:
        other = rng.choice((f"{key}s", "ü", '""', "channel", "type", "model", "name"))
        lines[number] = lines[number].replace(key, other)
    elif how == 6:
        place = rng.randrange(len(lines))
        lines.insert(place, rng.choice(("[[device]]", "[[link]]", "[device]", "[[", "]", "x", "\0")))
    elif how == 7:
        depth = rng.choice(DEPTHS)
        lines[number] = f"{key} = {'[' * depth}{']' * depth}"
    else:
        begin, end = sorted(rng.sample(range(len(lines) + 1), 2))
        lines[begin:end] = lines[begin:end] * rng.choice((0, 2, 30))
    return "\n".join(lines), f"change {how} of line {number}: {key}"


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
