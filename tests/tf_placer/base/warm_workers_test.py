"""The shared workers are lent for what they are, and their end is told where it happened."""

import pytest

from tests.tf_placer.base.warm_workers import Lent
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.local import local_devices


class Dead:
    """A pair of which a worker is dead."""

    def death(self) -> str:
        return "worker 1 was killed by signal 9"


def test_workers_that_an_earlier_test_ended_are_not_started_again():
    with pytest.raises(AssertionError, match="an earlier test ended the shared workers: worker 1 was killed"):
        Lent(Dead()).start()


def test_nobody_ends_what_is_lent(warm_workers):
    lent = warm_workers.lend(warm_workers.cluster)
    lent.start()
    before = lent.pids
    lent.close()
    assert lent.pids == before and lent.death() is None
    with pytest.raises(AssertionError, match="ran into its deadline"):
        lent.kill()
    again = warm_workers.lend(warm_workers.cluster)
    again.start()
    assert again.pids == before


def test_another_cluster_gets_none(warm_workers):
    with pytest.raises(AssertionError, match="the pair is not"):
        warm_workers.lend(Cluster("local", *local_devices(1), kind="local"))
