"""Links fitted to hops, and the two workers' own time."""

import os
import subprocess
import sys

import pytest

from tf_placer.calibration.build_problem import Hop, busy_ns, fit_link
from tf_placer.cluster.device import Link

LINK = Link(0, 1, 1, 1.0, "grpc:0->1")
SIZES = [1 << power for power in range(10, 27, 2)]


def test_a_link_that_is_a_line_is_found_again():
    hops = [Hop(b, 90_000 + 0.9 * b, 30_000 + 0.2 * b, 20_000 + 0.3 * b) for b in SIZES]
    link = fit_link(LINK, hops)
    assert (link.source, link.target, link.channel) == (0, 1, "grpc:0->1")
    assert link.send_ns == pytest.approx(30_000, rel=1e-3)
    assert link.send_ps_per_byte == pytest.approx(200, rel=1e-2)
    assert link.receive_ns == pytest.approx(20_000, rel=1e-3)
    assert link.receive_ps_per_byte == pytest.approx(300, rel=1e-2)
    assert link.latency_ns == pytest.approx(40_000, rel=1e-3)
    assert 1e9 / link.bytes_per_s == pytest.approx(0.4, rel=1e-2)


def test_a_tensor_by_itself_takes_as_long_as_measured_though_its_ends_work_at_the_same_time():
    hops = [Hop(b, 300_000 + 0.6 * b, 230_000 + 0.5 * b, 230_000 + 0.5 * b) for b in SIZES]
    link = fit_link(LINK, hops)
    assert link.latency_ns > 0  # a factor on the ends has room upward
    assert link.send_ns + link.latency_ns + link.receive_ns == pytest.approx(300_000, rel=1e-3)
    assert link.send_ps_per_byte + link.receive_ps_per_byte == pytest.approx(600, rel=1e-2)
    assert link.send_ns == link.receive_ns


def test_processor_time_of_another_process_is_seen():
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE) as process:
        while busy_ns(process.pid) < 300_000_000:
            pass
        process.communicate(b"\n")
    assert busy_ns(os.getpid()) > 0
