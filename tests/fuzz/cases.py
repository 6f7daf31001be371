"""One damaged input from its kind and its seed: the same in every process."""

import dataclasses
import pathlib
import random
import shutil
from collections.abc import Callable

import tensorflow as tf

from tests.fuzz import originals
from tests.fuzz.byte_mutations import damaged
from tests.fuzz.graph_mutations import damage_graph
from tests.fuzz.saved_model_mutations import damage_saved_model
from tests.fuzz.text_mutations import damage_cluster, damage_plan


@dataclasses.dataclass(frozen=True)
class Case:
    """What is run, and how the input was damaged."""

    # of the command; for a plan, which a command reads only where it can be measured, its path
    argv: tuple[str, ...]
    what: str  # in words


def make_case(kind: str, seed: int, good: pathlib.Path, folder: pathlib.Path) -> Case:
    """Writes a damaged input."""
    return KINDS[kind](random.Random(f"{kind} {seed}"), good, folder)


def _saved_model(rng: random.Random, good: pathlib.Path, folder: pathlib.Path) -> Case:
    name, model = rng.choice(originals.SAVED_MODELS), folder / "model"
    shutil.copytree(good / name, model)
    what = damage_saved_model(model, rng)
    return Case(_place(folder, f"--saved_model={model}"), f"{name}: {what}")


def _meta_graph(rng: random.Random, good: pathlib.Path, folder: pathlib.Path) -> Case:
    content = (good / originals.META_GRAPH).read_bytes()
    fetches = ",".join(originals.FETCHES)
    how = rng.random()
    if how < 0.2:
        content, what = damaged(content, rng)
    elif how < 0.3:
        fetches = rng.choice(
            ("", "nowhere", "loss:1", "loss:x", ":", "^loss", "x", "loss,loss", "ü", "loss:99999999999")
        )
        what = f"--fetches={fetches}"
    else:
        meta_graph = tf.compat.v1.MetaGraphDef.FromString(content)
        what = damage_graph(meta_graph.graph_def, rng)
        content = meta_graph.SerializeToString(deterministic=True)
    file = folder / "step.pb"
    file.write_bytes(content)
    return Case(_place(folder, f"--meta_graph={file}", f"--fetches={fetches}"), what)


def _plan(rng: random.Random, good: pathlib.Path, folder: pathlib.Path) -> Case:
    text = (good / originals.PLAN).read_text(encoding="utf8")
    file = folder / originals.PLAN
    if rng.random() < 0.4:
        content, what = damaged(text.encode(), rng)
    else:
        text, what = damage_plan(text, rng)
        content = text.encode()
    file.write_bytes(content)
    return Case((str(file),), what)


def _cluster(rng: random.Random, good: pathlib.Path, folder: pathlib.Path) -> Case:
    text = (good / originals.CLUSTER_FILE).read_text(encoding="utf8")
    if rng.random() < 0.25:
        content, what = damaged(text.encode(), rng)
    else:
        text, what = damage_cluster(text, rng)
        content = text.encode()
    file = folder / originals.CLUSTER_FILE
    file.write_bytes(content)
    program = (f"--meta_graph={good / originals.META_GRAPH}", "--fetches=loss")
    return Case(_place(folder, *program, cluster=str(file)), what)


def _place(folder: pathlib.Path, *program: str, cluster: str = originals.CLUSTER) -> tuple[str, ...]:
    search = ("--method=single", "--budget_evaluations=2")
    return ("place", *program, f"--cluster={cluster}", *search, f"--out={folder / 'out'}")


KINDS: dict[str, Callable[[random.Random, pathlib.Path, pathlib.Path], Case]] = {
    "saved_model": _saved_model,
    "meta_graph": _meta_graph,
    "plan": _plan,
    "cluster": _cluster,
}
