"""Profile of a program on the runtime: times of ops, and of links between devices."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import rich.console
import rich.table

from tf_placer.base.quantities import milliseconds, percentage
from tf_placer.calibration.build_problem import Hop, OpTimes, Profile, calibrated, profile
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.described import Reading
from tf_placer.command_line.request import Request
from tf_placer.planning.forms import Form
from tf_placer.planning.road import compiling
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem

_COSTLIEST = 10
_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Shown:
    """Measured times of a program and of the links between its devices."""

    problem: Problem  # the program on the cluster, with estimated costs
    type_of: dict[str, str]  # op name -> type
    measured: Profile  # op times, and what messages take where there are several workers
    cluster: Cluster  # with links as they were measured; as it was where there are none

    def as_data(self) -> dict[str, Any]:
        """The same for programs: every op, seconds, and the first link, which stands for all."""
        measured = self.measured
        data: dict[str, Any] = {
            "workload": self.problem.name,
            "cluster": self.cluster.name,
            "devices": {
                model: {
                    "step_s": times.step_s,
                    "ops": {
                        op: {"type": self.type_of[op], "seconds": ns / 1e9}
                        for op, ns in sorted(times.op_ns.items(), key=lambda entry: -entry[1])
                    },
                    "unmeasured": list(times.unmeasured),
                }
                for model, times in measured.op_times.items()
            },
        }
        if measured.pair is None or measured.traffic is None:
            return {**data, "messages": None, "link": None, "join_s": None, "fit": None}
        return {
            **data,
            "messages": [
                {
                    "num_bytes": hop.num_bytes,
                    "elapsed_s": hop.elapsed_ns / 1e9,
                    "send_s": hop.send_ns / 1e9,
                    "receive_s": hop.receive_ns / 1e9,
                }
                for hop in measured.pair.hops
            ],
            "link": dataclasses.asdict(self.cluster.links[0]),
            "join_s": float(self.cluster.join_ns().max() / 1e9),
            "fit": {"placements": len(measured.traffic.measured_s), "error": measured.traffic.error},
        }


def show_profile(request: Request, console: rich.console.Console) -> Shown:
    """Profiles the workload on the live cluster, or reads a kept profile, and prints the result."""
    found = _profiled(request, console)
    measured = found.measured
    for model, times in measured.op_times.items():
        _print_op_times(model, times, found.type_of, console)
    if measured.pair is not None and measured.traffic is not None:
        corrected = found.cluster
        console.print(_hop_table(measured.pair.hops))
        console.print(_link_line(corrected), soft_wrap=True)
        console.print(f"a step with another worker in it takes {corrected.join_ns().max() / 1e3:.0f} us more")
        count, error = len(measured.traffic.measured_s), measured.traffic.error
        console.print(
            f"fitted to {count} placements of a program of our own; median absolute error there {percentage(error)}",
            soft_wrap=True,
        )
    return found


def _profiled(request: Request, console: rich.console.Console) -> Shown:
    cluster = request.cluster
    road, found = Reading(request, console), list[Profile]()

    def build(_: float) -> None:
        road.item = request.source.item()
        road.form = Form(analytic_problem(road.item, cluster), road.item)

    def ask(_: float) -> None:
        road.expect_profile(road.program)
        found.append(profile(road.program, road.problem))

    road.stages.run([*compiling(road.stages), road.building(build), road.profiling(ask)])
    item, problem, (measured,) = road.program, road.problem, found
    type_of = dict(zip(item.index.names, item.index.op_types, strict=True))
    has_links = measured.pair is not None and measured.traffic is not None
    return Shown(problem, type_of, measured, calibrated(problem, measured).cluster if has_links else cluster)


def _print_op_times(
    model: str, times: OpTimes, type_of: dict[str, str], console: rich.console.Console
) -> None:
    table = rich.table.Table(
        title=f"{model}: {milliseconds(times.step_s)} a step, {len(times.op_ns)} ops measured"
    )
    table.add_column("costliest ops", overflow="fold")
    table.add_column("type")
    table.add_column("time", justify="right")
    costliest = sorted(times.op_ns, key=times.op_ns.__getitem__, reverse=True)[:_COSTLIEST]
    for name in costliest:
        table.add_row(name, type_of[name], milliseconds(times.op_ns[name] / 1e9))
    console.print(table)
    if times.unmeasured:
        named = ", ".join(times.unmeasured[:_NAMED])
        console.print(
            f"{len(times.unmeasured)} ops did not run under their own name and count as free: {named}, ...",
            soft_wrap=True,
        )


def _hop_table(hops: tuple[Hop, ...]) -> rich.table.Table:
    table = rich.table.Table(title="one tensor from worker to worker")
    for column in ("bytes", "elapsed", "of both cores"):
        table.add_column(column, justify="right")
    for hop in hops:
        busy_ns = hop.send_ns + hop.receive_ns
        table.add_row(str(hop.num_bytes), f"{hop.elapsed_ns / 1e3:.0f} us", f"{busy_ns / 1e3:.0f} us")
    return table


def _link_line(cluster: Cluster) -> str:
    link = cluster.links[0]
    per_byte = np.array([link.send_ps_per_byte, link.receive_ps_per_byte]) / 1e3
    return (
        f"link: {link.latency_ns / 1e3:.0f} us on the way; the sender works {link.send_ns / 1e3:.0f} us + "
        f"{per_byte[0]:.2f} ns a byte, the receiver {link.receive_ns / 1e3:.0f} us + {per_byte[1]:.2f} ns a byte"
    )
