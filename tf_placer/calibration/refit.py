"""Corrections of the simulator from measured placements, and from a program of our own."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.optimize
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Link
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.grouper.groups import min_cut_partition
from tf_placer.planners.plain import RandomBlocks
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph
from tf_placer.runtime.timing import RuntimeConfig

_MAX_STEPS = 30
_RELATIVE_STEP = 0.05  # of derivatives: a smaller one sees little but single ops that change places
_RANGE = (0.01, 100.0)
# A factor of e costs as much as an error of 20 % in one placement: few measurements move the factors little.
_PRIOR_WEIGHT = 0.2


@dataclasses.dataclass(frozen=True)
class Correction:
    """Factors on what was profiled.

    Attributes:
      compute: of every op's time. Above 1 where the threads of a worker disturb each other.
      alone: of the constant part of what a tensor by itself takes from end to end.
      ends: of what sending and receiving have in that, at most all of it. Below 1 where messages come in bursts: a
        thread that is awake already costs nothing to wake. The rest the tensor spends on its way.
      per_byte: of the ends' part that grows with the tensor.
      join: of what a step takes longer when a device takes part in it.
    """

    compute: float = 1.0
    alone: float = 1.0
    ends: float = 1.0
    per_byte: float = 1.0
    join: float = 1.0

    def apply(self, problem: Problem) -> Problem:
        """The problem with corrected times."""
        return dataclasses.replace(
            problem,
            compute_ns=np.rint(self.compute * problem.compute_ns).astype(np.int64),
            cluster=self.apply_to_cluster(problem.cluster),
        )

    def apply_to_cluster(self, cluster: Cluster) -> Cluster:
        """The cluster with corrected links and devices that join alike."""
        devices = tuple(
            dataclasses.replace(device, join_ns=round(self.join * device.join_ns))
            for device in cluster.devices
        )
        return dataclasses.replace(
            cluster, devices=devices, links=tuple(map(self.apply_to_link, cluster.links))
        )

    def apply_to_link(self, link: Link) -> Link:
        """The link with corrected times; its bandwidth stays."""
        alone_ns = link.send_ns + link.latency_ns + link.receive_ns
        most = alone_ns / max(link.send_ns + link.receive_ns, 1)
        send_ns, receive_ns = (
            round(self.alone * min(self.ends, most) * ns) for ns in (link.send_ns, link.receive_ns)
        )
        return dataclasses.replace(
            link,
            latency_ns=max(round(self.alone * alone_ns) - send_ns - receive_ns, 0),
            send_ns=send_ns,
            receive_ns=receive_ns,
            send_ps_per_byte=round(self.per_byte * link.send_ps_per_byte),
            receive_ps_per_byte=round(self.per_byte * link.receive_ps_per_byte),
        )


def refit(
    problem: Problem,
    device_of_unit: np.ndarray | Decisions,
    measured_s: np.ndarray,
) -> Correction:
    """The factors under which simulated times are nearest to measured ones.

    Least squares of the logarithm of their ratio, each factor held near 1 by a prior, in a trust region (Branch,
    Coleman & Li 1999).

    Args:
      problem: as profiled.
      device_of_unit: [B, U] placements that ran, or all that B plans decide.
      measured_s: [B].
    """

    def residuals(factors: np.ndarray) -> np.ndarray:
        corrected = Correction(*factors).apply(problem)
        simulated_s = SimulatedEvaluator(corrected).evaluate(device_of_unit).runtime_s
        return np.concatenate([np.log(simulated_s / measured_s), _PRIOR_WEIGHT * np.log(factors)])

    start = np.ones(len(dataclasses.fields(Correction)))
    best = scipy.optimize.least_squares(
        residuals, start, bounds=_RANGE, diff_step=_RELATIVE_STEP, max_nfev=_MAX_STEPS
    )
    return Correction(*map(float, best.x))


# Costs of transfers among other work, fitted on a program of our own and used for every other.

_LAYERS = 24
_ROWS = (8, 64, 512, 8, 64, 2048)  # of the lanes' activations: tensors of 4 KB to 1 MB
_MAX_PRODUCT_ROWS = 512
_COLUMNS = 128
_LAYERS_PER_UPDATE = 2
_CHAIN, _SCOPE = 40, "chain"
_RANDOM, _PARTS, _LINKS = 4, (2, 4, 8, 16, 32, 64, 128), (1, 2, 8)
_ROUNDS = 15


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Placements of the traffic program, simulated and measured.

    Attributes:
      correction: of links that were measured tensor by tensor.
      measured_s: step times on the runtime.
      before_s, after_s: simulated, ops as fast as they were then, without the correction and with it.
    """

    correction: Correction
    measured_s: tuple[float, ...]
    before_s: tuple[float, ...]
    after_s: tuple[float, ...]

    @property
    def error(self) -> float:
        """Median absolute error of the corrected simulation, relative."""
        return float(np.median(np.abs(np.array(self.after_s) / np.array(self.measured_s) - 1)))


def traffic_item() -> Item:
    """Lanes of small layers with tensors of several sizes, which now and then mix; a chain; an optimizer's scalars.

    Like training steps it has stretches where messages come one by one and others where they come in bursts. The bursts
    are the scalars: what Adam corrects its moments with is computed as a step begins and needed as it ends. In random
    placements of the small transformer about half of all messages are of this kind. While the lanes keep a worker busy
    nothing waits for one message; in the chain, as in a recurrent network, everything does, and so its latency shows.
    """
    random = np.random.default_rng(0)
    weights = [tf.constant(random.normal(0, 0.05, (_COLUMNS, _COLUMNS)), tf.float32) for _ in _ROWS]
    inputs = [tf.zeros([rows, _COLUMNS]) for rows in _ROWS]
    neighbor = random.integers(len(_ROWS), size=(_LAYERS, len(_ROWS)))
    decay = random.uniform(0.9, 0.999, (_LAYERS, len(_ROWS)))

    @tf.function
    def step(lanes, weights, count):
        updates = []
        for layer in range(_LAYERS):
            products = [tf.nn.relu(_layer(x, w)) for x, w in zip(lanes, weights, strict=True)]
            means = [tf.reduce_mean(x, axis=0) for x in products]
            lanes = [x + means[neighbor[layer, lane]] for lane, x in enumerate(products)]
            if layer % _LAYERS_PER_UPDATE == 0:
                for mean, one_decay in zip(means, decay[layer], strict=True):
                    power = tf.pow(float(one_decay), count)
                    updates.append(mean * power * (tf.sqrt(1 - power) / (1 + power)))
        state = lanes[0]
        with tf.name_scope(_SCOPE):
            for _ in range(_CHAIN):
                state = tf.tanh(tf.matmul(state, weights[0]))
        return [tf.reduce_sum(x) for x in lanes], state, updates

    return Item.from_function(step, inputs, weights, tf.constant(3.0), name="traffic")


def _layer(x: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """A product, or, where that takes longer than sending the tensor, a sum."""
    return tf.matmul(x, weight) if x.shape[0] <= _MAX_PRODUCT_ROWS else x + weight[0]


def traffic_placements(problem: Problem) -> np.ndarray:
    """[B, U] placements from no crossing tensor to most; in some only the chain crosses, link by link."""
    graph, devices = unit_graph(problem), problem.num_devices
    cuts = [min_cut_partition(problem, graph, parts) % devices for parts in _PARTS]
    drawn = [row for row in RandomBlocks(problem, seed=0).draw(4 * _RANDOM) if len(np.unique(row)) > 1]
    chain = problem.unit_of_op[[name.startswith(_SCOPE) for name in problem.op_names]]
    chains = np.zeros((len(_LINKS), problem.num_units), np.int32)
    for row, length in zip(chains, _LINKS, strict=True):
        row[chain] = np.arange(1, 1 + len(chain)) // length % devices
    return np.concatenate([[problem.everything_on(0)], cuts, chains, drawn[:_RANDOM]]).astype(np.int32)


def measure_traffic(item: Item, problem: Problem, config: RuntimeConfig) -> Traffic:
    """Runs the traffic program in many placements and fits the links of its problem to their step times.

    Args:
      item: ``traffic_item()``.
      problem: its ops profiled, its links from hops.
      config: of the measurement.
    """
    rows = traffic_placements(problem)
    with RuntimeEvaluator(item, problem, config) as evaluator:
        times = evaluator.race(rows, _ROUNDS, confidence=1.0)
    return fit_traffic(problem, rows, np.array([np.median(one) for one in times]))


def fit_traffic(problem: Problem, rows: np.ndarray, measured_s: np.ndarray) -> Traffic:
    """Fits the links of the traffic program's problem to step times of its placements.

    A tensor that is sent by itself costs the cores more than one of many, and how much more cannot be told from
    sending tensors alone; and what the simulator leaves out, such as threads in each other's way, costs
    something too. Factors on what single tensors cost stand for all of it but one: how fast the ops themselves were
    is fitted beside them and left behind, because the machine drifts, and ops as small as these feel a split most.

    Args:
      problem: its ops profiled, its links from hops.
      rows: [B, U] ``traffic_placements(problem)``.
      measured_s: [B].
    """
    found = refit(problem, rows, measured_s)
    before_s, after_s = (
        SimulatedEvaluator(one.apply(problem)).evaluate(rows).runtime_s
        for one in (Correction(compute=found.compute), found)
    )
    return Traffic(
        dataclasses.replace(found, compute=1.0), tuple(measured_s), tuple(before_s), tuple(after_s)
    )
