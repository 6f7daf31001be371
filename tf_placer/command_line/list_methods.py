"""The table of search methods."""

from __future__ import annotations

from typing import Any

import rich.console

from tf_placer.method_spec import MethodSpec
from tf_placer.search import methods
from tf_placer.search.settings import configured, recorded


def list_methods(console: rich.console.Console) -> list[dict[str, Any]]:
    """Prints of each method what it is, and returns that."""
    found = [_about(methods.find(name)) for name in methods.names()]
    for about in found:
        console.print(f"{about['name']}: {about['summary']}", soft_wrap=True)
        ignores = f"; ignores {', '.join(about['ignores'])}" if about["ignores"] else ""
        console.print(f"  {about['kind']}{ignores}", soft_wrap=True)
        if about["settings"]:
            settings = ", ".join(f"{name}={value}" for name, value in about["settings"].items())
            console.print(f"  --set: {settings}", soft_wrap=True)
    return found


def _about(spec: MethodSpec) -> dict[str, Any]:
    """What a method is, what it does not look at, and what can be set."""
    return {
        "name": spec.name,
        "summary": spec.summary,
        "kind": spec.kind.value,
        "ignores": list(spec.ignores),
        "settings": recorded(configured(spec)),
    }
