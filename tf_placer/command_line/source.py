"""Source of a program: a workload by name, a script's function, a SavedModel's signature, a MetaGraphDef, ..."""

from __future__ import annotations

import dataclasses
import pathlib

from tf_placer import workloads
from tf_placer.command_line.scripts.script import Script
from tf_placer.command_line.scripts.script_item import kind_of, script_item
from tf_placer.graph.item import Item
from tf_placer.graph.read_graph import (
    SERVING,
    GraphFile,
    InputShapes,
    SavedModel,
    read_meta_graph_file,
    read_saved_model,
)
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.rewrite import place_meta_graph
from tf_placer.transform.split import split


@dataclasses.dataclass(frozen=True)
class Source:
    """Program to place: exactly one of five kinds."""

    workload: str | None = None  # a name of ``tf_placer.workloads.names()``
    saved_model: str | None = None  # folder of a SavedModel; with ``signature``
    signature: str = "serving_default"
    # File of a serialized MetaGraphDef or GraphDef; with ``fetches``, tensors ("node:i") and ops
    # ("node").
    meta_graph: str | None = None
    fetches: tuple[str, ...] = ()
    batch_size: int = 32  # of scripts, SavedModels and MetaGraphDefs, stands for dimensions of any size
    model: SavedModel | None = None  # the SavedModel, where it has been read (``with_model``)
    graph: str | None = None  # file of a graph that was profiled elsewhere; there is no program behind it
    # A function in a script, ``FILE.py:NAME`` or ``package.module:NAME``; with ``args``.
    script: str | None = None
    args: str | None = None  # what of the script gives its arguments, where the script does not say so itself
    # Of a SavedModel or a MetaGraphDef, input -> shape, where it leaves that open.
    input_shapes: InputShapes = dataclasses.field(default_factory=dict)
    tags: tuple[str, ...] = SERVING  # of the graph of a SavedModel
    parts: int = 1  # of the batch (``tf_placer.split``); 1 for the program as it is
    batch_statistics: str = "whole"  # of the ``"whole"`` batch, or of each ``"part"``
    # Positions of ops that are not split, as a plan has them (``Splitting``).
    kept_whole: tuple[int, ...] = ()
    # The script's program, once it has run.
    items: list[Item] = dataclasses.field(default_factory=list, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Name in reports."""
        if self.script:
            return Script.named(self.script).name
        return (
            self.workload
            or pathlib.Path(self.saved_model or self.meta_graph or self.graph or "").resolve().name
        )

    @property
    def called(self) -> str:
        """What a script's program is in Python, once it has run (``kind_of``); empty of others."""
        return kind_of(Script.named(self.script)) if self.script and self.items else ""

    @property
    def is_split_unasked(self) -> bool:
        """True where ``--parts=auto`` may put the batch in parts: it is fixed, and the plan's own graph is what is run.

        A SavedModel serves any batch, which one in parts does not, and a MetaGraphDef is written back with its own ops.
        """
        return self.parts == 1 and bool(self.workload or self.script)

    def with_model(self) -> Source:
        """The same with its SavedModel read, so that nothing that comes of it reads it again.

        Raises:
          InputError: it is missing or damaged.
        """
        if self.model is not None:
            return self
        return dataclasses.replace(self, model=read_saved_model(self.saved_model or "", self.tags))

    def item(self) -> Item:
        """Reads or builds it, and splits its batch.

        Raises:
          InputError: it is unknown, missing or damaged, or its batch has fewer examples than parts.
        """
        item = self._whole_item()
        names = item.index.names
        # A plan of another program is refused where it is applied, and says what it is of.
        kept_whole = [names[op] for op in self.kept_whole if op < len(names)]
        return split(item, self.parts, self.batch_statistics, kept_whole)

    def _whole_item(self) -> Item:
        if self.workload:
            return workloads.build(self.workload)
        if self.script:
            if not self.items:  # it runs once
                self.items.append(script_item(Script.named(self.script), self.args, self.batch_size))
            return self.items[0]
        if self.saved_model:
            model = self.with_model().model
            assert model is not None  # just read
            return Item.from_saved_model(model, self.signature, self.batch_size, self.name, self.input_shapes)
        meta_graph = self.read_meta_graph().meta_graph
        return Item.from_meta_graph(meta_graph, self.fetches, self.name, self.batch_size, self.input_shapes)

    def read_meta_graph(self) -> GraphFile:
        """The file of a graph, parsed.

        Raises:
          InputError: it is missing or damaged.
        """
        return read_meta_graph_file(pathlib.Path(self.meta_graph or ""), f"--meta_graph={self.meta_graph}")

    def placed_meta_graph(self, placement: Placement, item: Item | None) -> GraphFile:
        """The file with a placement of its item in it.

        Raises:
          InputError: as ``place_meta_graph``.
        """
        file = self.read_meta_graph()
        return dataclasses.replace(file, meta_graph=place_meta_graph(file.meta_graph, placement, item))
