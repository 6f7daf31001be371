"""Several graphs teach one policy; each has a baseline and a best placement of its own."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.go.small_go import OF_GROUPS, OTHER, PROBLEM
from tf_placer.agents.go.batch_training import ManyProblems
from tf_placer.agents.learner import Beginning
from tf_placer.evaluation.simulated import SimulatedEvaluator


def beginning_of(problem):
    simulator = SimulatedEvaluator(problem)

    def simulate(rows):
        times = simulator.times(tf.constant(rows))
        return times.runtime_s.numpy(), times.fits.numpy()

    plans = problem.everything_on(0)[np.newaxis]
    return Beginning(plans, float(simulate(plans)[0][0]), simulate)


@pytest.mark.slow
def test_unlike_problems_share_the_weights_and_nothing_else():
    problems = [PROBLEM, OTHER]
    many = ManyProblems(problems, OF_GROUPS, [beginning_of(one) for one in problems], seed=0)
    turns = list(many.rounds(3))
    assert np.shape(turns) == (3, 2) and np.isfinite(turns).all() and int(many.count) == 3
    one, other = many.learners
    assert one.policy is other.policy is many.policy
    # Three updates of six samples each.
    assert float(one.baseline.count[0]) == float(other.baseline.count[0]) == 18
    assert float(one.baseline.average[0]) != float(other.baseline.average[0])
    assert one.inputs.legal.shape[1] == 2 and other.inputs.legal.shape[1] == 3
    names = [variable.name for variable in many.policy.trainable_variables]
    assert len({id(v) for v in many.trainable_variables}) == len(names)
