"""Kind of a file or folder that a user gives, by its bytes: a GraphDef may be called saved_model.pb."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import pathlib
import re
import zipfile

from tf_placer.base.arguments import InputError

SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
"""In the order in which TensorFlow looks for them."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """Kind of a file or a folder."""

    what: str  # with its article
    remedy: str  # for a user who gave it for something else; {} stands for its path
    flags: tuple[str, ...] = ()  # that accept it


_AS_GRAPH = "give --meta_graph={} with --fetches (in Python: tf_placer.Item.from_meta_graph)"
_FROM_KERAS = (
    "export it with keras.models.load_model(FILE).export(FOLDER) and give --saved_model=FOLDER, or write "
    "model = keras.models.load_model('{}') in a script and give FILE.py:model"
)
_CONVERTED = "give the SavedModel that it was converted from"
_AGAIN = "write or copy it again"
_UNPACKED = "unpack it, and give what is in it"
_GRAPH_DEF = Kind("a GraphDef", _AS_GRAPH, ("meta_graph",))
_META_GRAPH = Kind("a MetaGraphDef", _AS_GRAPH, ("meta_graph",))
_MODEL_FILE = Kind(
    "the file of a SavedModel", "call it saved_model.pb, in a folder that --saved_model=FOLDER names"
)
_MODEL_FOLDER = Kind("the folder of a SavedModel", "give --saved_model={}", ("saved_model",))
_ONNX = Kind("an ONNX model", "convert it to a SavedModel (onnx2tf does, for example) and give the folder")
_KERAS = Kind("a Keras model", _FROM_KERAS)
_CHECKPOINT = Kind(
    "a checkpoint, which has no graph", "give the SavedModel or the .meta file that belongs to it"
)
_PROFILED = Kind("a profiled graph", "give --graph={}", ("graph",))
_PLAN = Kind("a plan", "give --plan={} with the program that it is of", ("plan", "placement"))
_MARKS = (  # offset, bytes, kind
    (0, b"\x89HDF\r\n\x1a\n", Kind("a Keras model or weights in HDF5", _FROM_KERAS)),
    (4, b"TFL3", Kind("a TensorFlow Lite model", _CONVERTED)),
    (0, b"\x1f\x8b", Kind("a file that gzip compressed", _UNPACKED)),
    (257, b"ustar", Kind("a tar archive", _UNPACKED)),
)
_END_OF_TABLE = bytes.fromhex("57fb808b247547db")  # of LevelDB, TensorFlow's format of checkpoints
_TEXTS = (  # regular expression for the start of a text behind its comments, kind
    (r"saved_model_schema_version\s*:|meta_graphs\s*:?\s*[{<]", _MODEL_FILE),
    (r"(meta_info|graph|saver|collection|signature|asset_file|object_graph)_def\s*:?\s*[{<]", _META_GRAPH),
    (r"(node|library|versions)\s*:?\s*[{<]", _GRAPH_DEF),
    (r"\S+ -- .* -- ", _PROFILED),
    (r"(.*\n)*?\[\[device\]\]", Kind("the file of a cluster", "give --cluster={}", ("cluster",))),
)
_OBJECTS = (  # JSON: a key, the type of its value, kind
    ("nodes", list, _PROFILED),
    ("devices", dict, _PLAN),
    ("modelTopology", dict, Kind("a TensorFlow.js model", _CONVERTED)),
)
_OP_TYPE = re.compile(rb"[A-Za-z_][\w.>]*")
_MOST_FIELDS = 64  # numbers of the fields of these messages are below it


def check_kind(flag: str, path: pathlib.Path, said: str) -> None:
    """Raises InputError where a file or folder is recognized as a kind that a flag does not accept.

    The path may be missing; ``said`` has it in the words of the message.
    """
    kind = kind_of(path)
    if kind is not None and flag not in kind.flags:
        raise InputError(f"{said}: it is {kind.what}; {kind.remedy.replace('{}', str(path))}")


def kind_of(path: pathlib.Path) -> Kind | None:
    """Kind of a file by its bytes, or of a folder by its files; None where missing or not recognized."""
    if not path.is_dir():
        kind = None
        if path.is_file():  # a pipe can be read only once
            with contextlib.suppress(OSError):  # its reader reports the error
                kind = _kind_of_bytes(path.read_bytes())
        if kind is _MODEL_FILE and path.name in SAVED_MODEL_FILES:
            return dataclasses.replace(kind, remedy=f"give its folder, --saved_model={path.parent}")
        return kind
    for name in SAVED_MODEL_FILES:
        if (path / name).is_file():
            kind = kind_of(path / name)
            if kind is None or kind.what == _MODEL_FILE.what:
                return kind and _MODEL_FOLDER
            remedy = kind.remedy.replace("{}", f"{{}}/{name}")
            return Kind(f"a folder whose {name} is {kind.what}", remedy)
    files = sorted(path.glob("*/saved_model.pb*"))
    if files:
        remedy = f"give a folder in it that has one, --saved_model={files[-1].parent}"
        return Kind("a folder without a saved_model.pb", remedy)
    if (path / "variables" / "variables.index").is_file() or (path / "keras_metadata.pb").is_file():
        remedy = "export the model again, and copy the whole folder"
        return Kind("a SavedModel without its saved_model.pb", remedy)
    graphs = [file for file in sorted(path.glob("*.meta")) if kind_of(file) is _META_GRAPH]
    if graphs:
        return Kind("a folder of checkpoints and their graphs", _AS_GRAPH.replace("{}", str(graphs[-1])))
    return _CHECKPOINT if any(kind_of(file) is _CHECKPOINT for file in path.glob("*.index")) else None


def _kind_of_bytes(data: bytes) -> Kind | None:
    if not data.strip():
        return Kind("empty", _AGAIN, ("settings",))
    for at, mark, kind in _MARKS:
        if data.startswith(mark, at):
            return kind
    if data.endswith(_END_OF_TABLE):
        return _CHECKPOINT
    if data.startswith(b"PK\x03\x04"):
        try:
            names = zipfile.ZipFile(io.BytesIO(data)).namelist()
        except zipfile.BadZipFile:
            return Kind("a zip archive, as a Keras model is, that ends early", _AGAIN, ("weights",))
        is_model = any(name.endswith(SAVED_MODEL_FILES) for name in names)
        archive = Kind("a zip archive of a SavedModel", _UNPACKED) if is_model else None
        return _KERAS if "config.json" in names else archive  # None of arrays, which have their own reader
    message, is_whole = _message(memoryview(data))
    if message is not None and not is_whole:
        return Kind(f"{message.what} that ends early", _AGAIN)
    if message is not None:
        return message
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):  # its reader reports bad JSON
            content = json.loads(text)
            kinds = (kind for key, cls, kind in _OBJECTS if isinstance(content.get(key), cls))
            return next(kinds, None)
    text = re.sub(r"\A(\s|#.*)*", "", text)
    return next((kind for pattern, kind in _TEXTS if re.match(pattern, text)), None)


def _message(data: memoryview) -> tuple[Kind | None, bool]:
    """Kind of a protocol buffer by its first fields, without a schema, and True if complete."""
    values, is_whole = _fields(data)
    head, second = values.get(1), values.get(2)
    if isinstance(head, int) and isinstance(second, memoryview):
        return (_MODEL_FILE if head == 1 and len(values) == 2 else _ONNX if head > 1 else None), is_whole
    if isinstance(head, memoryview):
        node = _fields(head)[0]
        op_type = node.get(2)
        if (
            isinstance(node.get(1), memoryview)
            and isinstance(op_type, memoryview)
            and _OP_TYPE.fullmatch(op_type)
        ):
            return _GRAPH_DEF, is_whole
    inner = _message(second)[0] if isinstance(second, memoryview) else None
    if inner is _META_GRAPH and head is None:
        return _MODEL_FILE, is_whole
    return (_META_GRAPH if inner is _GRAPH_DEF else None), is_whole


def _fields(data: memoryview) -> tuple[dict[int, int | memoryview], bool]:
    """First value of each field of a message, and whether the last one is complete; none of other bytes."""
    values: dict[int, int | memoryview] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if not 0 < number < _MOST_FIELDS or wire_type not in (0, 1, 2, 5):
            return {}, False
        if wire_type == 0:
            value, at = _varint(data, at)
            values.setdefault(number, value)
            continue
        size, at = _varint(data, at) if wire_type == 2 else (8 if wire_type == 1 else 4, at)
        values.setdefault(number, data[at : at + size])
        at += size
    return values, at == len(data)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number with seven bits in each byte, and the position behind; beyond the end where cut off."""
    value = 0
    for place in range(at, len(data)):
        value |= (data[place] & 127) << 7 * (place - at)
        if data[place] < 128:
            return value, place + 1
    return value, len(data) + 1
