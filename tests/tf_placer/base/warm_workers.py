"""One pair of worker processes for all the tests of a run that end none: starting a pair takes seconds."""

from __future__ import annotations

import dataclasses

from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.workers.local_workers import LocalWorkers, WorkerMemory


class WarmWorkers:
    """Pairs of pinned workers, one for each number of inter-op threads, started when first lent."""

    def __init__(self) -> None:
        self.cluster = Cluster.local(2)
        self._pairs: dict[int, LocalWorkers] = {}

    def lend(self, cluster: Cluster, inter_op_threads: int = 2) -> Lent:
        """Workers for a cluster of two CPU workers; stands for ``workers_of``."""
        names = [device.name for device in cluster.devices]
        assert names == [device.name for device in self.cluster.devices], f"the pair is not {names}"
        if inter_op_threads not in self._pairs:
            self._pairs[inter_op_threads] = LocalWorkers(self.cluster, inter_op_threads)
        return Lent(self._pairs[inter_op_threads])

    def evaluator(
        self,
        item: Item,
        problem: Problem,
        config: RuntimeConfig = RuntimeConfig(),
        as_it_is: Item | None = None,
    ) -> RuntimeEvaluator:
        """An evaluator on the pair; to close it leaves the pair running."""
        evaluator = RuntimeEvaluator(item, problem, config, as_it_is)
        evaluator._workers = self.lend(problem.cluster, config.inter_op_threads)
        return evaluator

    def deaths(self) -> list[str]:
        """One line for each pair of which a worker is dead."""
        return [death for pair in self._pairs.values() if (death := pair.death())]

    def close(self) -> None:
        for pair in self._pairs.values():
            pair.close()


@dataclasses.dataclass(frozen=True)
class Lent:
    """A pair that its user may not end: ``Workers`` whose ``close`` gives it back."""

    pair: LocalWorkers

    @property
    def target(self) -> str:
        return self.pair.target

    @property
    def addresses(self) -> tuple[str, ...]:
        return self.pair.addresses

    @property
    def pids(self) -> tuple[int, ...]:
        return self.pair.pids

    @property
    def memories(self) -> tuple[WorkerMemory, ...]:
        return self.pair.memories

    def start(self) -> None:
        assert self.death() is None, f"an earlier test ended the shared workers: {self.death()}"
        self.pair.start()

    def death(self) -> str | None:
        return self.pair.death()

    def kill(self) -> None:
        raise AssertionError("a test on shared workers ran into its deadline")

    def close(self) -> None:
        pass
