"""How to use the files that a run wrote."""

from __future__ import annotations

import os
import pathlib
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from tf_placer.report_page.page import HowTo

_OF_FILES = ("signature", "tags", "batch_size", "input_shape")  # of SavedModels and MetaGraphDefs
_REPEATED = ("memory_limit", "input_shape")  # flags that are given once for each value
_GRAPH = """\
graph_def = tf.compat.v1.GraphDef.FromString(open({file!r}, "rb").read())
with tf.Graph().as_default():
    tf.import_graph_def(graph_def, name="")"""
_FUNCTION = """\
item = tf_placer.Item.from_function(train_step, *example_args)
problem = tf_placer.build_problem(item, {cluster})
placement = tf_placer.Placement.load({file!r}, problem)
train_step = tf_placer.placed_function(train_step, placement, *example_args)"""


def how_to(out: pathlib.Path, files: Collection[str], made_for: Mapping[str, Any]) -> tuple[HowTo, ...]:
    """What to type, with the names of the files that are there.

    Args:
      out: the folder.
      files: names of what is written there.
      made_for: the flags that describe the program and the devices.
    """
    plan = str(out / "placement.json")
    needed = {
        name: value for name, value in made_for.items() if "workload" not in made_for or name not in _OF_FILES
    }
    flags = " ".join(_flag(name, value) for name, value in needed.items())
    found = []
    if "saved_model" in files:
        model = str(out / "saved_model")
        found.append(
            HowTo("Load the model with the plan in it:", f"model = tf_placer.load_saved_model({model!r})")
        )
    for meta_graph in (
        out / name for name in ("placed_meta_graph.pb", "placed_meta_graph.pbtxt") if name in files
    ):
        found.append(
            HowTo(f"{meta_graph} is your MetaGraphDef with the plan in it: import it in place of yours.")
        )
    if "placed_graph.pb" in files:
        graph = str(out / "placed_graph.pb")
        found.append(
            HowTo("Import the graph; its ops ask for the devices of the plan:", _GRAPH.format(file=graph))
        )
        if "saved_model" not in files:
            code = _FUNCTION.format(file=plan, cluster=_in_python(str(made_for.get("cluster", "local"))))
            found.append(HowTo("Or place the tf.function that the graph was made of:", code))
    if "graph" in made_for:
        return (
            HowTo(f"{plan} has the device of every op. There is no program behind a profiled graph."),
            *found,
        )
    found.append(
        HowTo(
            f"The plan is {plan}, a text file to read and edit. Apply it again, as it is or edited:",
            f"tf-placer place {flags} --plan={shlex.quote(plan)} --out=OTHER_FOLDER",
        )
    )
    found.append(
        HowTo("Ask why an op is where it is:", f"tf-placer explain --plan={shlex.quote(plan)} --op=NAME")
    )
    return tuple(found)


def _in_python(cluster: str) -> str:
    """The cluster that a word of ``--cluster`` means."""
    word, _, cores = cluster.partition(":")
    if word == "local":
        return f"tf_placer.Cluster.local({cores})"
    is_file = os.sep in cluster or cluster.endswith(".toml")
    return f"tf_placer.Cluster.{'from_file' if is_file else 'preset'}({cluster!r})"


def _flag(name: str, value: object) -> str:
    values = list(value) if isinstance(value, list | tuple) else [value]
    texts = map(str, values) if name in _REPEATED else [",".join(map(str, values))]
    return " ".join(f"--{name}={shlex.quote(text)}" for text in texts)
