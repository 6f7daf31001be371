"""TensorFlow errors as one line for a user."""

from __future__ import annotations

import re

# {{function_node __wrapped__MatMul_device_/job...}} and the list of nodes behind a message say where TensorFlow was.
_WHERE = re.compile(r"\[\[.*?\]\]|\{\{function_node [^}]*\}\}|\[Op:[^\]]*\](?: name:.*)?", re.DOTALL)
_NODE = re.compile(r"\{\{(?:\w+ )?([^}]*)\}\}")
_STACK = re.compile(r'^\s*File "', re.MULTILINE)
_HEADING = re.compile(
    r"in user code:|Graph execution error:|Detected at node.*|Node: .*"
    r"|\d+ (derived|root) error.*|\d+ successful operations.*"
)
_KIND = re.compile(r"^(?:[\w.]*(?:Error|Exception)): ")


def plain(text: str) -> str:
    """A message on one line, without where in TensorFlow it arose; nodes of the user's graph are left as names."""
    return " ".join(_NODE.sub(r"\1", _WHERE.sub("", text)).split())


def told(error: BaseException) -> str:
    """Message of a TensorFlow error on one line, without stacks and headings; its class if it has none."""
    message = getattr(
        error, "message", None
    )  # TensorFlow's errors have what they say apart from where they arose
    text = message if isinstance(message, str) and message else str(error)
    for paragraph in re.split(r"\n\s*\n", text):
        if _STACK.search(paragraph):
            continue
        lines = [line for line in paragraph.splitlines() if not _HEADING.fullmatch(line.strip())]
        line = _KIND.sub("", plain("\n".join(lines)))
        if line:
            return line
    return type(error).__name__
