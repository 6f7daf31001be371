"""Time that the pass of ``tf-placer run`` takes of each function that TensorFlow instantiates.

    python -m experiments.plug_in_cost [--workloads=dense_small,two_towers]

The first steps of some training steps: without any plan; with plans of other programs, so that each graph is looked at;
and with a plan of its own. All that these calls have TensorFlow instantiate counts, eager ops' functions, too.
"""

from __future__ import annotations

import tensorflow as tf
from absl import flags

from experiments.main_program import run_program
from tf_placer import workloads
from tf_placer.rewrite.plug_in import FunctionPlan, PlugIn, plug_in

_WORKLOADS = flags.DEFINE_list(
    "workloads",
    ["dense_small", "two_towers", "inception_v3_small", "bert_base_small", "inception_v3"],
    "Training steps, by name.",
)
_HERE = "/job:localhost/replica:0/task:0/device:CPU:0"


def main(_: list[str]) -> None:
    """Prints a table."""
    cost = PlugIn(plug_in())
    print("| step | ops | without a plan | beside another plan | with its plan |\n|---|---|---|---|---|")
    for name in _WORKLOADS.value:
        row = [_ms(cost, name, plan) for plan in ("", "another", "its own")]
        print(f"| {name} | {row[0][0]:,} | " + " | ".join(f"{ms:.4f} ms" for _, ms in row) + " |", flush=True)


def _ms(plugged: PlugIn, name: str, plan: str) -> tuple[int, float]:
    """Ops of the traced step, and milliseconds of the pass for each function."""
    function, args = workloads.function(name)
    concrete = function.get_concrete_function(*args)
    ops = {op.name: (op.type, _HERE) for op in concrete.graph.get_operations()}
    known_as = {"another": "of_another_program", "its own": tf.compat.as_str(concrete.name)}
    label = plugged.add(FunctionPlan(known_as[plan], ops)) if plan else None
    functions, seconds = plugged.seen()
    concrete(*args)
    more, after_s = plugged.seen()
    if label is not None:
        plugged.remove(label)
    return len(ops), 1e3 * (after_s - seconds) / (more - functions)


if __name__ == "__main__":
    run_program(main)
