"""What a user wants placed: a workload by name, a SavedModel's signature, or a MetaGraphDef."""

from __future__ import annotations

import dataclasses
import pathlib

import tensorflow as tf
from google.protobuf import message

from tf_placer import workloads
from tf_placer.errors import InputError
from tf_placer.graph.item import Item


@dataclasses.dataclass(frozen=True)
class Source:
    """Exactly one of three.

    Attributes:
      workload: a name of ``tf_placer.workloads.names()``.
      saved_model: folder of a SavedModel; with ``signature``.
      meta_graph: file of a serialized MetaGraphDef; with ``fetches``, tensors ("node:i") and ops ("node").
      batch_size: of SavedModels and MetaGraphDefs, stands for dimensions of any size.

    Raises:
      InputError: none of them is given or several are, or a MetaGraphDef without fetches.
    """

    workload: str | None = None
    saved_model: str | None = None
    signature: str = "serving_default"
    meta_graph: str | None = None
    fetches: tuple[str, ...] = ()
    batch_size: int = 32

    def __post_init__(self) -> None:
        given = [f"--{name}" for name in ("workload", "saved_model", "meta_graph") if getattr(self, name)]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} are given; give one of them")
        if not given:
            raise InputError(
                "this needs --workload (`workloads` lists them), --saved_model or --meta_graph: what to place"
            )
        if self.meta_graph and not self.fetches:
            raise InputError(
                "--meta_graph needs --fetches: what to compute, for example --fetches=loss:0,train_op"
            )

    @property
    def name(self) -> str:
        """In reports."""
        return self.workload or pathlib.Path(self.saved_model or self.meta_graph or "").resolve().name

    def item(self) -> Item:
        """Reads or builds it.

        Raises:
          InputError: it is unknown, missing or damaged.
        """
        if self.workload:
            return workloads.build(self.workload)
        if self.saved_model:
            return Item.from_saved_model(self.saved_model, self.signature, self.batch_size, self.name)
        return Item.from_meta_graph(self.read_meta_graph(), self.fetches, self.name, self.batch_size)

    def read_meta_graph(self) -> tf.compat.v1.MetaGraphDef:
        """The parsed file.

        Raises:
          InputError: it is missing or damaged.
        """
        meta_graph = tf.compat.v1.MetaGraphDef()
        try:
            meta_graph.ParseFromString(pathlib.Path(self.meta_graph or "").read_bytes())
        except OSError as error:
            raise InputError(f"--meta_graph={self.meta_graph}: {error.strerror}") from error
        except message.DecodeError as error:
            raise InputError(f"--meta_graph={self.meta_graph}: it is no MetaGraphDef ({error})") from error
        return meta_graph
