"""What ``place_by_list`` computes, one rule at a time, in plain Python: the slow and obvious one."""

import math

import numpy as np

from tf_placer.agents.learned_list.learned_list import CONTEXT, FEATURES, ListInputs

_OPEN = CONTEXT.index("open")


def reference_place_by_list(inputs: ListInputs, coefficients: np.ndarray, passes: int) -> list[int]:
    """The device of each node, by a rule [P] of list scheduling.

    Nodes are decided in the order of place + sum_k order[k] order_feature_k, each on the legal device with the highest
    sum_f (sum_c rule[f, c] context_c(v)) feature_f(v, d); of equal ones on the first. What has no choice is there from
    the beginning.
    """
    nodes, devices = inputs.legal.shape
    rule = np.reshape(coefficients[: len(FEATURES) * len(CONTEXT)], [len(FEATURES), len(CONTEXT)])
    order_rule = [1.0, *coefficients[len(FEATURES) * len(CONTEXT) :]]
    key = [sum(a * b for a, b in zip(row, order_rule, strict=True)) for row in inputs.order_features.tolist()]
    free = [v for v in sorted(range(nodes), key=lambda v: key[v]) if inputs.legal[v].sum() > 1]
    device_of_node = [-1 if row.sum() > 1 else int(row.argmax()) for row in inputs.legal]
    last = -1
    for _ in range(passes):
        for v in free:
            device_of_node[v] = -1
            scores = _scores(inputs, rule, device_of_node, v, last)
            last = max((d for d in range(devices) if inputs.legal[v, d]), key=lambda d: scores[d])
            device_of_node[v] = last
    return device_of_node


def _scores(
    inputs: ListInputs, rule: np.ndarray, device_of_node: list[int], v: int, last: int
) -> list[float]:
    """[D] of a node that is not decided, from where the others are."""
    devices = inputs.legal.shape[1]
    on = [[u for u, device in enumerate(device_of_node) if device == d] for d in range(devices)]
    load = [sum(inputs.work[u, d] for u in on[d]) for d in range(devices)]
    total = _total(inputs, v)
    open_bytes = sum(b for u, b in _ends(inputs, v) if device_of_node[u] < 0)
    context = [*inputs.context[v]]
    context[_OPEN] = 2 * open_bytes / total
    most = max([0.0, *(load[d] + inputs.work[v, d] for d in range(devices))])
    scores = []
    for d in range(devices):
        transfer = sum(
            b * inputs.link_per_byte[device_of_node[u], d] + inputs.link_fixed[device_of_node[u], d]
            for u, b in _ends(inputs, v)
            if device_of_node[u] >= 0
        )
        rival = sum(inputs.work[u, d] * float(inputs.window[u] @ inputs.window[v]) for u in on[d])
        indirect = sum(
            b * sum(c for w, c in _ends(inputs, u) if device_of_node[w] == d) / (_total(inputs, u) * total)
            for u, b in _ends(inputs, v)
            if device_of_node[u] < 0
        )
        affinity = sum(b for u, b in _ends(inputs, v) if device_of_node[u] == d) / total
        after = load[d] + inputs.work[v, d]
        memory = sum(inputs.memory[u, d] for u in on[d]) + inputs.memory[v, d]
        features = {
            "slowness": inputs.slowness[v, d],
            "load": load[d],
            "overfull": min(max(after - 1, 0.0), 3.0),
            "balance": after / most if most else 0.0,
            "rival": min(rival, 6.0) / 2,
            "transfer": min(8 * transfer, 6.0),
            "any_transfer": math.log1p(200 * transfer) / 3,
            "affinity": affinity,
            "any_affinity": math.sqrt(affinity),
            "indirect": indirect,
            "memory": memory,
            "full": min(max(20 * (memory - 0.85), 0.0), 5.0),
            "unused": float(not on[d]),
            "last": float(d == last),
        }
        scores.append(sum(float(rule[f] @ context) * features[name] for f, name in enumerate(FEATURES)))
    return scores


def _ends(inputs: ListInputs, v: int) -> list[tuple[int, float]]:
    """Neighbors and bytes."""
    some = slice(inputs.neighbor_offset[v], inputs.neighbor_offset[v + 1])
    return list(zip(inputs.neighbor[some].tolist(), inputs.neighbor_bytes[some].tolist(), strict=True))


def _total(inputs: ListInputs, v: int) -> float:
    return max(1.0, sum(b for _, b in _ends(inputs, v)))
