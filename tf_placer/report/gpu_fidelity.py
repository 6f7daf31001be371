"""Sentence on how far simulated GPUs are from real ones: figures of ``docs/results/gpu_fidelity.md``."""

from __future__ import annotations

import functools
import json
import pathlib

from tf_placer.cluster.cluster import Cluster

FIGURES = pathlib.Path(__file__).with_name("gpu_fidelity.json")
ALL = "all"  # GPUs of the page together
_PAGE = "docs/results/gpu_fidelity.md"


@functools.cache
def _figures() -> dict[str, dict[str, float]]:
    """Model of a device -> ``rows`` of networks measured on it, ``own`` by us, and the typical ``factor``."""
    return json.loads(FIGURES.read_text(encoding="utf8"))


def fidelity_sentence(model: str) -> str:
    """How far simulated steps of networks on one GPU of a model are from measurements.

    Args:
      model: of a ``Device``.
    """
    found = _figures().get(model)
    if found is None:
        factor = _figures()[ALL]["factor"]
        return (
            f"Steps on {model} are simulated, and no published measurements of networks on it were found; on other "
            f"GPUs single steps are within a factor of {factor:.2f} in the typical case ({_PAGE})."
        )
    kind, count = ("", f"{found['rows']:.0f} of them, {found['own']:.0f} our own")
    if not found["own"]:
        kind, count = "published ", f"{found['rows']:.0f} of them"
    return (
        f"Steps on {model} are simulated: single steps of networks on this GPU are within a factor of "
        f"{found['factor']:.2f} of {kind}measurements in the typical case ({count}; {_PAGE})."
    )


def fidelity_sentences(cluster: Cluster) -> list[str]:
    """One for each GPU model of a cluster that is only described; none for live devices."""
    if cluster.kind != "described":
        return []
    models = {device.model: None for device in cluster.devices if device.type == "GPU"}
    return [fidelity_sentence(model) for model in models]
