"""Exports a Keras application with random weights, as a SavedModel to place.

python -m experiments.export_keras_model --model=MobileNetV3Small --size=64 --out=out/m
python -m tf_placer place --saved_model=out/m --cluster=p100x2 --out=out/q
"""

from __future__ import annotations

import pathlib

import keras
from absl import flags

import tf_placer
from experiments.main_program import out_flag, run_program, seed_flag
from tf_placer.base.arguments import InputError
from tf_placer.graph.read_graph import read_saved_model

FLAGS = flags.FLAGS
MODELS = sorted(name for name in dir(keras.applications) if name[0].isupper())
flags.DEFINE_enum("model", "MobileNetV3Small", MODELS, "which application")
flags.DEFINE_integer(
    "size", 64, "height and width of its images; each application has a least one", lower_bound=1
)
flags.DEFINE_integer("batch", 0, "images in a batch; 0: any number", lower_bound=0)
seed_flag("of the weights")
out_flag("out/m", "folder of the SavedModel, which must not be there yet")

SIGNATURE = "serving_default"


def main(argv: list[str]) -> None:
    del argv
    out = pathlib.Path(FLAGS.out)
    if out.exists():
        raise InputError(f"--out={out} is there already; give a new folder")
    keras.utils.set_random_seed(FLAGS.seed)
    image = (FLAGS.size, FLAGS.size, 3)
    model = getattr(keras.applications, FLAGS.model)(weights=None, input_shape=image)
    spec = keras.InputSpec(shape=(FLAGS.batch or None, *image), dtype="float32", name="image")
    model.export(str(out), input_signature=[spec], verbose=False)

    saved = read_saved_model(out)
    signature = saved.signature(SIGNATURE)
    for kind, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for name, info in sorted(tensors.items()):
            sizes = ", ".join(str(dim.size) if dim.size >= 0 else "any" for dim in info.tensor_shape.dim)
            print(f"{SIGNATURE} {kind} {name}: [{sizes}]")
    item = tf_placer.Item.from_saved_model(saved, SIGNATURE)
    megabytes = sum(variable.num_bytes for variable in item.variables) / 1e6
    print(
        f"wrote {out}: {len(item.graph_def.node)} ops, {len(item.variables)} variables of {megabytes:.1f} MB"
    )


if __name__ == "__main__":
    run_program(main)
