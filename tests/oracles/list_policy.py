"""What ``place_by_list`` computes, one rule at a time, in plain Python: the slow and obvious one."""

import math

import numpy as np

from tf_placer.agents.learned_list.learned_list import CONTEXT, FEATURES, ListInputs

_OPEN = CONTEXT.index("open")


def reference_place_by_list(
    inputs: ListInputs, coefficients: np.ndarray, passes: int, kept: list[int]
) -> list[int]:
    """The device of each node, by a rule [P] of list scheduling.

    Nodes are decided in the order of place + sum_k order[k] order_feature_k, each on the legal device with the highest
    sum_f (sum_c rule[f, c] context_c(v)) feature_f(v, d); of equal ones on the first. What has no choice is there from
    the beginning, as is what is ``kept`` [V] on a device and not -1, and stays. In each pass a device does its nodes
    one after the other, in that order.
    """
    nodes, devices = inputs.legal.shape
    rule = np.reshape(coefficients[: len(FEATURES) * len(CONTEXT)], [len(FEATURES), len(CONTEXT)])
    order_rule = [1.0, *coefficients[len(FEATURES) * len(CONTEXT) :]]
    key = [sum(a * b for a, b in zip(row, order_rule, strict=True)) for row in inputs.order_features.tolist()]
    order = sorted(range(nodes), key=lambda v: key[v])
    choices = [np.flatnonzero(row) if d < 0 else [d] for row, d in zip(inputs.legal, kept, strict=True)]
    device_of_node = [-1 if len(devices_of) > 1 else int(devices_of[0]) for devices_of in choices]
    last, last_alike, end_of_node = -1, [-1] * nodes, [0.0] * nodes
    for _ in range(passes):
        done = [0.0] * devices
        for v in order:
            device_of_node[v] = -1
            ready = [_ready(inputs, device_of_node, end_of_node, v, d) for d in range(devices)]
            end = [max(ready[d], done[d]) + inputs.duration[v, d] for d in range(devices)]
            earliest = min(end[d] for d in choices[v])
            alike = [d for u, d in enumerate(device_of_node) if inputs.kind[u] == inputs.kind[v] and d >= 0]
            of_schedule = [
                {
                    "finish": min(8 * max(end[d] - earliest, 0.0), 6.0),
                    "any_finish": math.log1p(200 * max(end[d] - earliest, 0.0)) / 3,
                    "idle": math.log1p(200 * max(ready[d] - done[d], 0.0)) / 3,
                    "alike": alike.count(d) / max(len(alike), 1),
                    "alike_last": float(d == last_alike[inputs.kind[v]]),
                    "last": float(d == last),
                }
                for d in range(devices)
            ]
            scores = _scores(inputs, rule, device_of_node, v, of_schedule)
            last = int(max(choices[v], key=lambda d: scores[d]))
            device_of_node[v] = last_alike[inputs.kind[v]] = last
            end_of_node[v] = done[last] = end[last]
    return device_of_node


def _scores(
    inputs: ListInputs,
    rule: np.ndarray,
    device_of_node: list[int],
    v: int,
    of_schedule: list[dict[str, float]],
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
            **of_schedule[d],
        }
        scores.append(sum(float(rule[f] @ context) * features[name] for f, name in enumerate(FEATURES)))
    return scores


def _ready(inputs: ListInputs, device_of_node: list[int], end_of_node: list[float], v: int, d: int) -> float:
    """When all is on a device that a node reads of decided ones."""
    ready = 0.0
    for e in range(inputs.neighbor_offset[v], inputs.neighbor_offset[v + 1]):
        u = inputs.neighbor[e]
        if inputs.from_neighbor[e] and device_of_node[u] >= 0:
            link = device_of_node[u], d
            transfer = inputs.link_fixed[link] + inputs.neighbor_bytes[e] * inputs.link_per_byte[link]
            ready = max(ready, end_of_node[u] + transfer)
    return ready


def _ends(inputs: ListInputs, v: int) -> list[tuple[int, float]]:
    """Neighbors and bytes."""
    some = slice(inputs.neighbor_offset[v], inputs.neighbor_offset[v + 1])
    return list(zip(inputs.neighbor[some].tolist(), inputs.neighbor_bytes[some].tolist(), strict=True))


def _total(inputs: ListInputs, v: int) -> float:
    return max(1.0, sum(b for _, b in _ends(inputs, v)))
