"""A page as one HTML file that needs no network: its data, the charting library and its own code are in it."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import html
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer.report_page.page import Page

_FOLDER = pathlib.Path(__file__).parent
_ASSETS, _ECHARTS = _FOLDER / "assets", _FOLDER / "echarts" / "echarts.min.js"
# In the order in which they need each other: constants are made when a script is read.
_SCRIPTS = (
    "format.js",
    "charts.js",
    "step_times.js",
    "lanes.js",
    "timeline.js",
    "timeline_events.js",
    "memory.js",
    "layers.js",
    "transfers.js",
    "progress.js",
    "apply.js",
    "main.js",
)
_SLOT = re.compile(r"{{(\w+)}}")
# In a script element these could end it, or begin a comment; in JSON they only stand in strings.
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page_html(page: Page) -> str:
    """The whole file.

    Only the scripts of this package run: the page's own policy names them by their hashes, so text that comes with a
    program can start nothing, and nothing is loaded from anywhere.
    """
    scripts = {"echarts": _asset(_ECHARTS), "script": "\n".join(_asset(_ASSETS / name) for name in _SCRIPTS)}
    hashes = " ".join(_source_hash(text) for text in scripts.values())
    parts = {
        "policy": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}",
        "title": html.escape(page.title),
        "style": _asset(_ASSETS / "page.css"),
        "data": page_json(page),
        **scripts,
    }
    return _SLOT.sub(lambda slot: parts[slot[1]], _asset(_ASSETS / "page.html"))


def page_json(page: Page) -> str:
    """The page's data; what a program calls its ops cannot leave the strings that it is in."""
    return json.dumps(_plain(page), separators=(",", ":"), allow_nan=False).translate(_ESCAPED)


def _plain(value: Any) -> Any:
    """A dataclass, and all that is in it, as JSON has it."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


@functools.cache
def _asset(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf8")


def _source_hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
