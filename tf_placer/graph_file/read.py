"""Files of profiled graphs, of any of the formats."""

from __future__ import annotations

import json
import os

from tf_placer import arguments
from tf_placer.errors import InputError
from tf_placer.graph_file.operator_graph import read_operator_graph
from tf_placer.graph_file.own_json import read_own_json
from tf_placer.graph_file.pipedream import read_pipedream
from tf_placer.graph_file.profiled_graph import ProfiledGraph


def read_graph_file(path: str | os.PathLike[str]) -> ProfiledGraph:
    """Reads a graph; its format is told by its content.

    JSON whose nodes have ids is an operator graph of Tarnawski et al., other JSON is ours (docs/graph_file.md), and
    text that begins with a layer is PipeDream's.

    Raises:
      InputError: the file is missing, damaged or of no such format.
    """
    file = arguments.path("graph", path, "the file of a graph")
    try:
        text = file.read_text(encoding="utf8")
    except OSError as error:
        raise InputError(f"--graph={file}: {error.strerror}; give the file of a graph") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--graph={file}: it is no text; give the file of a graph") from error
    where = f"--graph={file}"
    if not text.lstrip().startswith(("{", "[")):
        name = file.resolve().parent.name if file.stem == "graph" else file.stem
        return read_pipedream(where, name or file.stem, text)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: it is no JSON ({error}); give the whole file") from error
    if not isinstance(data, dict):
        raise InputError(f"{where}: it holds a list; give an object with nodes and edges")
    nodes = data.get("nodes")
    is_operator_graph = isinstance(nodes, list) and any(
        isinstance(node, dict) and "id" in node for node in nodes
    )
    return (read_operator_graph if is_operator_graph else read_own_json)(where, file.stem, data)
