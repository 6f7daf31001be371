"""Corrections of the simulator, fitted to measured placements of a program or of a synthetic one with much traffic."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.optimize
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.grouper.groups import min_cut_partition
from tf_placer.planners.plain import RandomBlocks
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph

_MAX_STEPS = 30
_RELATIVE_STEP = 0.05  # of derivatives; a smaller one shows little but single ops that change places
_RANGE = (0.01, 100.0)
# A factor of e costs as much as an error of 20 % in one placement, so few measurements move the factors little.
_PRIOR_WEIGHT = 0.2

# The synthetic program.
_LAYERS = 24
_ROWS = (8, 64, 512, 8, 64, 2048)  # of the lanes' activations: tensors of 4 KB to 1 MB
_MAX_PRODUCT_ROWS = 512
_COLUMNS = 128
_LAYERS_PER_UPDATE = 2
_CHAIN, _SCOPE = 40, "chain"
_RANDOM, _PARTS, _LINKS = 4, (2, 4, 8, 16, 32, 64, 128), (1, 2, 8)
_ROUNDS = 15


@dataclasses.dataclass(frozen=True)
class Correction:
    """Factors on profiled times."""

    compute: float = 1.0  # of every op's time; above 1 where the threads of a worker disturb each other
    alone: float = 1.0  # of the constant part of a single tensor's time from end to end
    # Of the part of sending and receiving in that, at most all of it. Below 1 where messages come in bursts: a thread
    # that is awake already costs nothing to wake. The rest is the tensor's time on its way.
    ends: float = 1.0
    per_byte: float = 1.0  # of the part of sending and receiving that grows with the tensor
    join: float = 1.0  # of the extra time of a step when a device takes part in it

    def apply(self, problem: Problem) -> Problem:
        """The problem with corrected times."""
        return dataclasses.replace(
            problem,
            compute_ns=np.rint(self.compute * problem.compute_ns).astype(np.int64),
            cluster=self.apply_to_cluster(problem.cluster),
        )

    def apply_to_cluster(self, cluster: Cluster) -> Cluster:
        """The cluster with corrected links, whose bandwidths stay, and devices."""
        devices = tuple(
            dataclasses.replace(device, join_ns=round(self.join * device.join_ns))
            for device in cluster.devices
        )
        links = []
        for link in cluster.links:
            alone_ns = link.send_ns + link.latency_ns + link.receive_ns
            ends = min(self.ends, alone_ns / max(link.send_ns + link.receive_ns, 1))
            send_ns, receive_ns = (round(self.alone * ends * ns) for ns in (link.send_ns, link.receive_ns))
            corrected = dataclasses.replace(
                link,
                latency_ns=max(round(self.alone * alone_ns) - send_ns - receive_ns, 0),
                send_ns=send_ns,
                receive_ns=receive_ns,
                send_ps_per_byte=round(self.per_byte * link.send_ps_per_byte),
                receive_ps_per_byte=round(self.per_byte * link.receive_ps_per_byte),
            )
            links.append(corrected)
        return dataclasses.replace(cluster, devices=devices, links=tuple(links))


def refit(problem: Problem, device_of_unit: np.ndarray | Decisions, measured_s: np.ndarray) -> Correction:
    """Factors that bring simulated times nearest to measured ones.

    Least squares of the logarithm of their ratio with a prior on each factor around 1, in a trust region (Branch,
    Coleman & Li 1999). The problem is as profiled; ``device_of_unit`` are [B, U] placements that ran, or the decisions
    of B plans, and ``measured_s`` [B] float64.
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


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Placements of the traffic program, simulated and measured."""

    correction: Correction  # of links that were measured tensor by tensor
    measured_s: tuple[float, ...]  # step times on the runtime
    before_s: tuple[float, ...]  # simulated without the correction, but with the speed of ops at that time
    after_s: tuple[float, ...]  # simulated with the correction

    @property
    def error(self) -> float:
        """Median absolute relative error of the corrected simulation."""
        return float(np.median(np.abs(np.array(self.after_s) / np.array(self.measured_s) - 1)))


def traffic_item() -> Item:
    """Lanes of small layers with tensors of several sizes, which mix now and then; a chain; an optimizer's scalars.

    Like a training step it has stretches with single messages and others with bursts. The bursts are the scalars: the
    corrections of Adam's moments are computed as a step begins and needed as it ends. In random placements of the small
    transformer about half of all messages are of this kind. While the lanes keep a worker busy nothing waits for a
    message. In the chain, as in a recurrent network, everything does, and so its latency shows.
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
            # A product or, where that takes longer than sending the tensor, a sum.
            products = [
                tf.nn.relu(tf.matmul(x, w) if x.shape[0] <= _MAX_PRODUCT_ROWS else x + w[0])
                for x, w in zip(lanes, weights, strict=True)
            ]
            means = [tf.reduce_mean(x, axis=0) for x in products]
            lanes = [x + means[neighbor[layer, lane]] for lane, x in enumerate(products)]
            if layer % _LAYERS_PER_UPDATE == 0:
                for mean, rate in zip(means, decay[layer], strict=True):
                    power = tf.pow(float(rate), count)
                    updates.append(mean * power * (tf.sqrt(1 - power) / (1 + power)))
        state = lanes[0]
        with tf.name_scope(_SCOPE):
            for _ in range(_CHAIN):
                state = tf.tanh(tf.matmul(state, weights[0]))
        return [tf.reduce_sum(x) for x in lanes], state, updates

    return Item.from_function(step, inputs, weights, tf.constant(3.0), name="traffic")


def traffic_placements(problem: Problem) -> np.ndarray:
    """[B, U] placements with no to most tensors crossing; in some only the chain crosses, link by link."""
    graph, devices = unit_graph(problem), problem.num_devices
    cuts = [min_cut_partition(problem, graph, parts) % devices for parts in _PARTS]
    drawn = [row for row in RandomBlocks(problem, seed=0).draw(4 * _RANDOM) if len(np.unique(row)) > 1]
    chain = problem.unit_of_op[[name.startswith(_SCOPE) for name in problem.op_names]]
    chains = np.zeros((len(_LINKS), problem.num_units), np.int32)
    for row, length in zip(chains, _LINKS, strict=True):
        row[chain] = np.arange(1, 1 + len(chain)) // length % devices
    return np.concatenate([[problem.everything_on(0)], cuts, chains, drawn[:_RANDOM]]).astype(np.int32)


def measure_traffic(item: Item, problem: Problem) -> Traffic:
    """Runs the traffic program in many placements and fits the links of its problem to their step times."""
    rows = traffic_placements(problem)
    with RuntimeEvaluator(item, problem) as evaluator:
        times = evaluator.race(rows, _ROUNDS, confidence=1.0)
    return fit_traffic(problem, rows, np.array([np.median(turns) for turns in times]))


def fit_traffic(problem: Problem, rows: np.ndarray, measured_s: np.ndarray) -> Traffic:
    """Fits the links of the traffic program's problem to step times of its placements.

    A single tensor costs the cores more than one of many, and measurements of single tensors do not tell how much more.
    Effects outside of the simulator, such as threads in each other's way, cost something, too. Factors on the costs of
    single tensors stand for all of this. The speed of the ops is fitted as well and then dropped, because the machine
    drifts, and ops as small as these suffer most from a split. The problem's ops are profiled, its links from hops;
    ``rows`` are [B, U] ``traffic_placements``, ``measured_s`` [B].
    """
    fitted = refit(problem, rows, measured_s)
    before_s, after_s = (
        SimulatedEvaluator(correction.apply(problem)).evaluate(rows).runtime_s
        for correction in (Correction(compute=fitted.compute), fitted)
    )
    correction = dataclasses.replace(fitted, compute=1.0)
    return Traffic(correction, tuple(measured_s), tuple(before_s), tuple(after_s))
