"""m-SCT: a favorite goes before a longer way, and its settings."""

import logging

from tests.tf_placer.planners.published_graphs import FORK
from tests.tf_placer.problem.small_problems import branches_problem, problem_of
from tf_placer.planners.m_sct import MSctConfig, m_etf, m_sct


def test_a_device_takes_the_favorite_of_what_it_ran():
    # m-ETF takes 1 of 50 ns after 0, and 2 then waits at home until 60, for it crosses until 110: 100 in all. The
    # favorite of 0 is 2: it runs from 10 to 50, and 1 crosses by 30 and ends at 80.
    problem = problem_of(*FORK)
    assert m_etf(problem).tolist() == [[0, 0, 0]]
    assert m_sct(problem).tolist() == [[0, 1, 0]]


def test_a_device_stays_awake_for_a_favorite_that_is_not_ready():
    # 0 ends at 10 and 1 at 30 on the other device; 2 reads both, over 10 + 200 and 10 + 40. Its favorite parent is 0,
    # the dearer one, so it waits there until 80. 3 reads 0 over 10 + 100, is ready at 10, and could be anywhere at 120,
    # before device 0 need not wait any longer at 220: it runs there at 120 at the earliest, after 2.
    problem = problem_of([10, 30, 20, 5], [(0, 2), (1, 2), (0, 3)], [200, 40, 100])
    (row,) = m_sct(problem)
    assert row[0] == row[2] != row[1]


def test_without_time_it_is_m_etf_and_says_so(caplog):
    problem = branches_problem(3, 4)
    with caplog.at_level(logging.WARNING):
        rows = m_sct(problem, MSctConfig(limit_s=0.0))
    assert rows.tolist() == m_etf(problem).tolist()
    assert "limit_s=0 ended before 1 of the linear programs" in caplog.text
