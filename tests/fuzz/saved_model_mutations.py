"""Damage to the folder of a SavedModel: files that are missing or damaged, and what the proto says."""

import pathlib
import random
import shutil

from tensorflow.core.protobuf import saved_model_pb2

from tests.fuzz.graph_mutations import DTYPES, NAMES, damage_graph, damage_shape
from tests.fuzz.text_mutations import damaged


def damage_saved_model(folder: pathlib.Path, rng: random.Random) -> str:
    """Damages a SavedModel in place; says how."""
    how = rng.random()
    if how < 0.2:
        return _damage_file(folder, rng)
    file = folder / "saved_model.pb"
    if how < 0.35:
        content, what = damaged(file.read_bytes(), rng)
        file.write_bytes(content)
        return f"saved_model.pb: {what}"
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    what = damage_graph(proto.meta_graphs[0].graph_def, rng) if how < 0.8 else _damage_proto(proto, rng)
    file.write_bytes(proto.SerializeToString(deterministic=True))
    return what


def _damage_file(folder: pathlib.Path, rng: random.Random) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = rng.choice(files)
    name, how = file.relative_to(folder), rng.randrange(5)
    if how == 0:
        file.unlink()
        return f"{name} missing"
    if how == 1:
        file.unlink()
        file.mkdir()
        return f"{name} a folder"
    if how == 2 and file.parent != folder:
        shutil.rmtree(file.parent)
        return f"{name.parent} missing"
    content, what = damaged(file.read_bytes(), rng)
    file.write_bytes(content)
    return f"{name}: {what}"


def _damage_proto(proto: saved_model_pb2.SavedModel, rng: random.Random) -> str:
    meta_graph = proto.meta_graphs[0]
    return rng.choice((_tags, _signature, _signature, _signature, _objects, _assets))(proto, meta_graph, rng)


def _tags(proto, meta_graph, rng: random.Random) -> str:
    how = rng.randrange(4)
    if how == 0:
        proto.meta_graphs.add().CopyFrom(meta_graph)
    elif how == 1:
        del proto.meta_graphs[:]
    elif how == 2:
        del meta_graph.meta_info_def.tags[:]
    else:
        proto.meta_graphs.add().meta_info_def.tags.append(rng.choice(("train", "", "😀")))
    return "graphs and their tags"


def _signature(proto, meta_graph, rng: random.Random) -> str:
    name = rng.choice(sorted(meta_graph.signature_def))
    signature = meta_graph.signature_def[name]
    side = rng.choice((signature.inputs, signature.outputs))
    if not side or rng.random() < 0.15:
        meta_graph.signature_def[rng.choice(NAMES)].CopyFrom(signature)
        del meta_graph.signature_def[name]
        return f"signature {name!r} renamed"
    key = rng.choice(sorted(side))
    info, how = side[key], rng.randrange(6)
    if how == 0:
        del side[key]
    elif how == 1:
        info.name = rng.choice((*NAMES, "nowhere:0", f"{info.name}7", "x:y", info.name.partition(":")[0]))
    elif how == 2:
        info.dtype = rng.choice(DTYPES)
    elif how == 3:
        damage_shape(info.tensor_shape, rng)
    elif how == 4:
        info.coo_sparse.values_tensor_name = "x:0"
    else:
        side["more"].CopyFrom(info)
    return f"signature {name!r}, tensor {key!r}"


def _objects(proto, meta_graph, rng: random.Random) -> str:
    nodes = meta_graph.object_graph_def.nodes
    if nodes and rng.random() < 0.5:
        del nodes[rng.randrange(len(nodes)) :]
    for node in nodes:
        for child in node.children:
            if rng.random() < 0.3:
                child.node_id = rng.choice((0, -1, 10**6, 2**31 - 1))
            if rng.random() < 0.1:
                child.local_name = rng.choice(NAMES)
    return "objects"


def _assets(proto, meta_graph, rng: random.Random) -> str:
    asset = meta_graph.asset_file_def.add()
    asset.filename = rng.choice(("nowhere.txt", "", "../../saved_model.pb", "/etc/hostname", "ü"))
    asset.tensor_info.name = rng.choice(("nowhere:0", ""))
    return f"asset {asset.filename!r}"
