"""GO's policy for several tasks: devices, then an order, then fusion, by the layers that they share."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from tf_placer.agents.features import draw_weights
from tf_placer.agents.go.policy import (
    FAINT,
    Chain,
    Encoded,
    GoConfig,
    GoInputs,
    GoPolicy,
    Scores,
    decided,
    kept_logits,
)
from tf_placer.base import masked
from tf_placer.grouper.groups import DEVICES, FUSION


class MultiTaskPolicy(snt.Module):
    """p(devices, order, fusion | graph) of a graph's nodes (Zhou et al. 2020).

    p(chain, l^1 .. l^L) = p(chain) prod_k prod_v p(l^k_v | devices, l^1 .. l^(k-1))

    Each further task gives every node one of K levels (``JointPlans``). It shares the graph encoder
    and the attention layers of the placement, which have no parameters for a task: their input
    tells the task, the devices of all nodes, their levels in the tasks before it, and the current
    levels in this and later tasks. A task has a row of its own, a row for each level, and its last
    linear layer. As with devices, everything that is drawn is the action, and the probability is
    exactly its own.

    Where only some steps are drawn, the decisions of the others stay, for certain.

    A state is [1 + L, V]: a device of each node, and its level in each further task. ``placement``
    is the policy for devices, whose weights may have been taught elsewhere.
    """

    def __init__(self, config: GoConfig, seed: int):
        """Draws weights from the seed."""
        super().__init__(name="multi_task_policy")
        tasks = config.tasks.split(",")
        self.config = config
        self.placement = GoPolicy(config, seed)
        self._tasks = [task for task in tasks if task != DEVICES]
        self._own = _OfTasks(len(self._tasks), config.levels, config.width, seed)
        self._passes = config.passes if DEVICES in tasks else 0
        self.num_steps = self._passes + len(self._tasks)  # T + L; T is 0 where devices are not decided

    def unfolded(self, state: tf.Tensor) -> tf.Tensor:
        """[B, T + L, V] steps that keep states [B, 1 + L, V]."""
        return tf.concat([tf.repeat(state[:, :1], self._passes, axis=1), state[:, 1:]], axis=1)

    def placed(self, begin: tf.Tensor, devices: tf.Tensor) -> tf.Tensor:
        """[B, 1 + L, V] a state with other devices [B, V]."""
        levels = tf.repeat(begin[tf.newaxis, 1:], tf.shape(devices)[0], axis=0)
        return tf.concat([devices[:, tf.newaxis], levels], axis=1)

    def state(self, chain: Chain) -> tf.Tensor:
        """[B, 1 + L, V] after the last step."""
        if self._passes:
            return chain.steps[:, self._passes - 1 :]
        devices = tf.repeat(chain.begin[tf.newaxis, :1], tf.shape(chain.steps)[0], axis=0)
        return tf.concat([devices, chain.steps], axis=1)

    def steps_of(self, task: int) -> list[bool]:
        """[T + L] the steps that decide one of the tasks, by its number in ``config.tasks``."""
        offset = 1 if self._passes else 0  # number of the first further task
        task_of_step = [0] * self._passes + [offset + further for further in range(len(self._tasks))]
        return [number == task for number in task_of_step]

    def sample(
        self, inputs: GoInputs, begin: tf.Tensor, count: int, seed: tf.Tensor, drawn: tf.Tensor | None = None
    ) -> tuple[Chain, Scores]:
        """Draws ``count`` chains, which begin with a state [1 + L, V]; ``drawn`` [T + L] bool, None draws all steps."""
        of_devices, of_levels = tf.unstack(tf.random.split(seed))
        encoded, passes = self.placement.encode(inputs), self._passes
        nodes = tf.shape(inputs.fuses)[0]
        noise = masked.gumbel(tf.stack([len(self._tasks), count, nodes, self.config.levels]), of_levels)
        begins = tf.repeat(begin[tf.newaxis], count, axis=0)
        state, stands = begins, self.unfolded(begins)
        drawn = tf.ones([self.num_steps], bool) if drawn is None else drawn
        steps, scores = [], []
        if passes:
            placed, placed_scores = self.placement.sample(inputs, begin[0], count, of_devices, encoded)
            steps.append(tf.where(drawn[0], placed.steps, stands[:, :passes]))
            scores.append(placed_scores)
            state = self.placed(begin, steps[0][:, -1])
        for task, of_task in enumerate(tf.unstack(noise)):
            # The largest logit with noise, task by task.
            before = _before(begins, state, task)
            logits = self._logits(inputs, task, self._states(inputs, encoded, task, before), before)
            step = passes + task
            level = tf.where(drawn[step], masked.largest(logits + of_task), stands[:, step])
            steps.append(level[:, tf.newaxis])
            scores.append(_scored(logits, level))
            state = _with_level(state, task, level)
        return Chain(begin, tf.concat(steps, axis=1)), _joined(scores, drawn)

    def score(self, inputs: GoInputs, chain: Chain, drawn: tf.Tensor | None = None) -> Scores:
        """Teacher forcing: the log-probabilities [B, T + L, V] of given steps, 0 where they were not ``drawn``."""
        encoded, passes = self.placement.encode(inputs), self._passes
        scores = []
        if passes:
            placing = Chain(chain.begin[0], chain.steps[:, :passes])
            scores.append(self.placement.score(inputs, placing, encoded))
        state = self.state(chain)
        begin = tf.repeat(chain.begin[tf.newaxis], tf.shape(state)[0], axis=0)
        scores.append(self.score_levels(inputs, begin, state, encoded))
        return _joined(scores, drawn)

    def score_levels(
        self, inputs: GoInputs, begin: tf.Tensor, state: tf.Tensor, encoded: Encoded | None = None
    ) -> Scores:
        """Log-probabilities and entropies [B, L, V] of the levels in states [B, 1 + L, V], given their devices.

        ``begin`` [B, 1 + L, V] has the levels of a task before it is decided.
        """
        encoded = self.placement.encode(inputs) if encoded is None else encoded
        # All tasks at once, as additional samples.
        before = [_before(begin, state, task) for task in range(len(self._tasks))]
        offsets = [self._own.told(task, levels[:, 1:]) for task, levels in enumerate(before)]
        devices = tf.tile(state[:, 0], [len(self._tasks), 1])
        attended = self.placement.states(encoded, decided(inputs, devices), tf.concat(offsets, axis=0))
        states = tf.split(attended, len(self._tasks))
        scores = [
            _scored(self._logits(inputs, task, states[task], levels), state[:, 1 + task])
            for task, levels in enumerate(before)
        ]
        return _joined(scores, None)

    def completed(
        self, inputs: GoInputs, begin: tf.Tensor, devices: tf.Tensor, temperature: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """[B, 1 + L, V] states with devices [B, V] and levels by a taught policy (``GoStudent``).

        Nothing leans to the neutral levels of ``begin`` [1 + L, V]; a ``temperature`` [B] of 0 takes
        the likeliest level.
        """
        count, nodes = tf.shape(devices)[0], tf.shape(inputs.fuses)[0]
        noise = masked.gumbel(tf.stack([len(self._tasks), count, nodes, self.config.levels]), seed)
        noise *= tf.reshape(temperature, [1, count, 1, 1])
        encoded = self.placement.encode(inputs)
        begins = tf.repeat(begin[tf.newaxis], count, axis=0)
        state = self.placed(begin, devices)
        for task, of_task in enumerate(tf.unstack(noise)):
            before = _before(begins, state, task)
            logits = self._own.logits(task, self._states(inputs, encoded, task, before))
            logits = masked.masked(logits, self._legal(inputs, task))
            state = _with_level(state, task, masked.largest(logits + of_task))
        return state

    def _states(self, inputs: GoInputs, encoded: Encoded, task: int, state: tf.Tensor) -> tf.Tensor:
        """[B, V, H] output of attention for a task, given the state before the task."""
        offset = self._own.told(task, state[:, 1:])
        return self.placement.states(encoded, decided(inputs, state[:, 0]), offset)

    def _logits(self, inputs: GoInputs, task: int, states: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
        """[B, V, K] masked logits of a task, from the attention's output [B, V, H] and the current state."""
        config = self.config
        logits = self._own.logits(task, states)
        stands, legal = tf.one_hot(state[:, 1 + task], config.levels), self._legal(inputs, task)
        logits = masked.masked(logits + kept_logits(stands, legal, config.keep_probability), legal)
        return masked.mixed(logits, legal, config.exploration) if config.exploration else logits

    def _legal(self, inputs: GoInputs, task: int) -> tf.Tensor:
        """[V, K] bool: a node without ops that can be fused has fusion level 0."""
        any_level = inputs.fuses if self._tasks[task] == FUSION else tf.ones_like(inputs.fuses)
        return tf.logical_or(any_level[:, tf.newaxis], tf.range(self.config.levels) == 0)


class _OfTasks(snt.Module):
    """Parameters of each further task: rows for the task and its levels, and its last layer."""

    def __init__(self, tasks: int, levels: int, width: int, seed: int):
        super().__init__(name="of_tasks")
        self._tasks = snt.Embed(tasks, width, name="tasks")
        self._levels = [snt.Embed(levels, width, name=f"levels_{task}") for task in range(tasks)]
        self._last = [snt.Linear(levels, name=f"last_{task}") for task in range(tasks)]
        self.told(0, tf.zeros([1, tasks, 1], tf.int32))
        for task in range(tasks):
            self.logits(task, tf.zeros([1, 1, width]))
        draw_weights(self, seed)
        # One row of a table is read, not the mean of all rows.
        for table in (self._tasks, *self._levels):
            table.embeddings.assign((table.embeddings.shape[0] / width) ** 0.5 * table.embeddings)
        for layer in self._last:
            layer.w.assign(FAINT * layer.w)

    def told(self, task: int, levels: tf.Tensor) -> tf.Tensor:
        """[B, V, H] of levels [B, L, V]."""
        by_task = zip(self._levels, tf.unstack(levels, axis=1), strict=True)
        rows = [table(of_task) for table, of_task in by_task]
        return tf.add_n(rows) + self._tasks(tf.constant([[task]]))

    def logits(self, task: int, states: tf.Tensor) -> tf.Tensor:
        """[B, V, K] of states [B, V, H]."""
        return snt.BatchApply(self._last[task])(states)


def _before(begin: tf.Tensor, state: tf.Tensor, task: int) -> tf.Tensor:
    """[B, 1 + L, V] decisions before a task, and the first levels in this and later tasks."""
    return tf.concat([state[:, : 1 + task], begin[:, 1 + task :]], axis=1)


def _with_level(state: tf.Tensor, task: int, level: tf.Tensor) -> tf.Tensor:
    """States [B, 1 + L, V] with levels [B, V] in a task."""
    return tf.concat([state[:, : 1 + task], level[:, tf.newaxis], state[:, 2 + task :]], axis=1)


def _scored(logits: tf.Tensor, choice: tf.Tensor) -> Scores:
    """Scores of one step, [B, 1, V]."""
    terms = masked.log_prob(logits, choice), masked.entropy(logits)
    return Scores(*(term[:, tf.newaxis] for term in terms))


def _joined(scores: list[Scores], drawn: tf.Tensor | None) -> Scores:
    """Scores of all steps, 0 for steps that were not drawn."""
    terms = [tf.concat(steps, axis=1) for steps in zip(*scores, strict=True)]
    if drawn is not None:
        terms = [tf.where(drawn[tf.newaxis, :, tf.newaxis], term, 0.0) for term in terms]
    return Scores(*terms)
