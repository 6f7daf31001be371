"""One file for each search: what was found, and all that made it, so that a killed table goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import pathlib
from typing import Any

from tf_placer.agents.weights import weights_path
from tf_placer.files import write_atomically
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.settings import configured, recorded


def made_of(
    problem: Problem, method: str, config: object, seed: int, evaluations: int, cap_s: float
) -> dict[str, Any]:
    """All that decides what a search finds, as JSON data.

    Raises:
      InputError: the method or a setting is unknown.
    """
    spec = methods.find(method)
    settings = recorded(configured(spec, config))
    made = {
        "problem": problem.digest(),
        "method": method,
        "seed": seed,
        "evaluations": evaluations,
        "cap_s": cap_s,
        "settings": settings,
        "versions": dict(spec.versions),
    }
    # What a file of weights is called says little of what is in it. Those that ship are beside a method's settings.
    weights = weights_path(settings.get("weights", ""), inspect.getfile(spec.config))
    return (
        {**made, "weights": hashlib.sha256(weights.read_bytes()).hexdigest()} if weights.is_file() else made
    )


def read_kept(path: pathlib.Path, made: dict[str, Any], cell: type) -> Any | None:
    """The cell that is on disk; None where there is none, it was made of something else, or is of another version.

    Args:
      path: of the file.
      made: what the cell that is wanted is made of.
      cell: its class, a dataclass of what JSON can hold.
    """
    try:
        known = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    fields = {field.name for field in dataclasses.fields(cell)}
    if not isinstance(known, dict) or known.get("key") != _key(made):
        return None
    return cell(**known["cell"]) if known.get("cell", {}).keys() == fields else None


def keep(path: pathlib.Path, made: dict[str, Any], cell: Any, **more: object) -> None:
    """Writes a cell, whole or not at all, with what else is worth knowing of it."""
    content = {"key": _key(made), "made_of": made, "cell": dataclasses.asdict(cell), **more}
    write_atomically(path, json.dumps(content, indent=1, default=str))


def _key(made: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made, sort_keys=True, default=str).encode()).hexdigest()
