"""How to use a plan: commands to type and code to run, with whole paths."""

from __future__ import annotations

import os
import pathlib
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from tf_placer.report_page.page import HowTo

# Flags of some kinds of programs alone.
_OF_KINDS = {
    "args": ("script",),
    "batch_size": ("script", "saved_model", "meta_graph"),
    "fetches": ("meta_graph",),
    "input_shape": ("saved_model", "meta_graph"),
    "signature": ("saved_model",),
    "tags": ("saved_model",),
}

_REPEATED = ("memory_limit", "input_shape")  # given once for each value
_LOGICAL = """\
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * {count})
"""
_SESSION = """\
import tensorflow as tf
import tf_placer

with open({graph}, "rb") as file:
    graph_def = tf.compat.v1.GraphDef.FromString(file.read())
target = tf_placer.session_target({cluster})
with tf.Graph().as_default(), tf.compat.v1.Session(target{config}) as session:
    tf.import_graph_def(graph_def, name="")
    # Here session.run(FETCHES, FEEDS): ops have the names that they had."""
_SERVER = (
    "A server, or another machine, has no such workers: for it, place the program on a cluster file that has the names "
    "of its devices (--cluster=FILE.toml)."
)
# A script's program: a model that trains, an auto-placed function, a tf.function, or something else to call.
MODEL, WRAPPED, FUNCTION, PLAIN = "model", "wrapped", "function", "plain"


def how_to(
    out: pathlib.Path,
    files: Collection[str],
    made_for: Mapping[str, Any],
    called: str = "",
    op: str = "NAME",
    is_compared: bool = False,
) -> tuple[HowTo, ...]:
    """Commands to type and code to run, with the names of files.

    Args:
      out: the folder of the results.
      made_for: the flags that describe the program and the devices.
      called: kind of a script's program, ``MODEL``, ``WRAPPED``, ``FUNCTION`` or ``PLAIN``; empty of others.
      op: to ask for.
      is_compared: the run compares methods, and writes no model.
    """
    out = out.absolute()
    plan, cluster = str(out / "placement.json"), str(made_for.get("cluster", "local"))
    if "graph" in made_for:
        return (HowTo(f"{plan} has the device of every op. There is no program behind a profiled graph."),)
    devices = _devices_of(cluster)
    steps = []
    if "saved_model" in made_for and not is_compared:
        # The plans of several signatures lie in a folder each, and their one model is beside these.
        model = (out if "saved_model" in files else out.parent) / "saved_model"
        code = f"model = tf_placer.load_saved_model({str(model)!r})"
        steps.append(HowTo(f"Load the model with the plan in it{devices}:", _python(cluster, code)))
    for name in ("placed_meta_graph.pb", "placed_meta_graph.pbtxt"):
        if name in files:
            text = f"{out / name} is your MetaGraphDef with the plan in it: import it in place of yours."
            steps.append(HowTo(text))
    if "script" in made_for and called:
        steps += _of_script(plan, made_for, called)
    elif "placed_graph.pb" in files and "saved_model" not in made_for:
        text = f"Import the graph with the plan in it{devices}:"
        word, _, count = cluster.partition(":")
        factory = "from_file" if os.sep in cluster or cluster.endswith(".toml") else "preset"
        code = f"{word}({count})" if word in ("local", "logical") else f"{factory}({cluster!r})"
        config = (
            f', config=tf.compat.v1.ConfigProto(device_count={{"CPU": {count}}})' if word == "logical" else ""
        )
        graph = str(out / "placed_graph.pb")
        session = _SESSION.format(graph=repr(graph), cluster=f"tf_placer.Cluster.{code}", config=config)
        steps.append(HowTo(text, session))
    if steps and cluster.partition(":")[0] == "local":
        steps.append(HowTo(_SERVER))
    kind = next(
        (name for name in ("script", "saved_model", "meta_graph", "workload") if name in made_for), ""
    )
    flags = []
    for name, value in made_for.items():
        if kind in _OF_KINDS.get(name, (kind,)):
            texts = [str(part) for part in (value if isinstance(value, list | tuple) else [value])]
            texts = texts if name in _REPEATED else [",".join(texts)]
            flags += [f"--{name}={shlex.quote(text)}" for text in texts]
    apply = f"tf-placer place {' '.join(flags)} --plan={shlex.quote(plan)} --out=OTHER_FOLDER"
    steps.append(HowTo(f"{plan} is the plan, a text file. Apply it again, as it is or edited:", apply))
    explain = f"tf-placer explain --plan={shlex.quote(plan)} --op={shlex.quote(op)}"
    steps.append(HowTo("Ask why an op is where it is:", explain))
    traces = out / "timeline.json"
    steps.append(HowTo(f"Drop {traces} into ui.perfetto.dev: this step, on live devices also as measured."))
    return tuple(steps)


def _devices_of(cluster: str) -> str:
    """Where code runs that needs the devices of a plan, as the end of a sentence."""
    word = cluster.partition(":")[0]
    if word == "local":
        return "; workers of this machine are started for that"
    return "" if word == "logical" else f", where there are the devices of {cluster}"


def _of_script(plan: str, made_for: Mapping[str, Any], called: str) -> list[HowTo]:
    where, _, name = str(made_for["script"]).rpartition(":")
    cluster, batch_size = str(made_for.get("cluster", "local")), int(made_for.get("batch_size", 32))
    folder, module = os.path.split(where.removesuffix(".py"))
    owner = name.partition(".")[0]
    step = f"{name}.train_step" if called == MODEL else name
    wrapped = f"{step}.unplaced" if called == WRAPPED else step
    batch = f", batch_size={batch_size}" if called == MODEL or batch_size != 32 else ""
    line = f"{step} = tf_placer.auto_place({wrapped}, cluster={cluster!r}{batch}, plan={plan!r})"
    path = f"sys.path.insert(0, {folder!r})\n" if where.endswith(".py") else ""
    code = f"{path}from {module} import {owner}\n\n{line}"
    then = f", before {name}.fit" if called == MODEL else ""
    steps = [
        HowTo(
            f"Have {step} run by the plan{_devices_of(cluster)}; in the script itself, the last line does that{then}:",
            _python(cluster, code, *(("sys",) if path else ())),
        )
    ]
    is_live = cluster.partition(":")[0] in ("local", "logical")
    # `run` watches calls of what is a tf.function in the script, and runs plans of the whole batch.
    if where.endswith(".py") and is_live and called in (MODEL, FUNCTION) and "parts" not in made_for:
        flags = f"--cluster={shlex.quote(cluster)} --batch_size={batch_size} --plan={shlex.quote(plan)}"
        text = "Or run the script by the plan, without a change of it:"
        steps.append(HowTo(text, f"tf-placer run {flags} {shlex.quote(where)}"))
    return steps


def _python(cluster: str, code: str, *modules: str) -> str:
    """Code behind its imports and, where needed, this process's logical devices."""
    word, _, count = cluster.partition(":")
    logical = _LOGICAL.format(count=count) if word == "logical" else ""
    standard = "".join(f"import {name}\n" for name in modules)
    tensorflow = "import tensorflow as tf\n" if "tf." in (logical + code).replace("tf_placer.", "") else ""
    head = f"{standard}\n" if standard else ""
    return f"{head}{tensorflow}import tf_placer\n\n{logical}{code}"
