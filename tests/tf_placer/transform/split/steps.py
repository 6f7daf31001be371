"""Random training steps, and how far a split one is from the step."""

import dataclasses

from tests.oracles.split_equality import differences, lost_order, run_lifted
from tests.tf_placer.transform.random_steps import RandomStep
from tf_placer.graph.item import Item
from tf_placer.graph.sizes import output_specs
from tf_placer.transform.split import split_program


def complaints(item: Item, parts: int, found=None) -> list[str]:
    """What is wrong with a split program; it is split here where it is not given."""
    found = split_program(item, parts) if found is None else found
    return [
        *differences(run_lifted(item), run_lifted(found.item)),
        *lost_order(item, found.item, found.origin_of),
        *wrong_sizes(found.item),
    ]


def wrong_sizes(item: Item) -> list[str]:
    """Ops of which TensorFlow infers other sizes than the item has; behind a loop it may be less certain of them."""
    wrong = []
    for name, had, specs in zip(item.index.names, item.outputs, output_specs(item.graph_def), strict=True):
        pairs = zip(had, specs, strict=True)
        if had != tuple(dataclasses.replace(spec, rule=own.rule and spec.rule) for own, spec in pairs):
            wrong.append(f"sizes of {name!r} are {had} and not {specs}")
    return wrong


def item_of_step(seed: int, batch: int, layers: list[str], loss: str, update: str) -> Item:
    step = RandomStep(seed, batch)
    step.layers, step.loss, step.update = layers, loss, update
    return Item.from_function(step.function(), *step.arguments)
