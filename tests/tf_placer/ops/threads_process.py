"""Prints what the simulator says of some placements, as JSON; the argument is how many threads work inside an op.

A process of its own: TensorFlow fixes its threads when its first op runs.
"""

import json
import sys

import numpy as np
import tensorflow as tf

from experiments.studies.random_arrays import random_layered_inputs
from tf_placer.ops.simulator import simulate


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
    inputs = random_layered_inputs(2000, 3, seed=0)
    cost = simulate(inputs, np.random.default_rng(1).integers(0, 3, (33, 2000), np.int32))
    found = {"runtime_ns": cost.runtime_ns.numpy().tolist(), "peak_bytes": cost.peak_bytes.numpy().tolist()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
