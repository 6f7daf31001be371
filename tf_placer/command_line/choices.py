"""Words that flags choose among, and flags that do not go together."""

from __future__ import annotations

from tf_placer.errors import InputError

FASTEST, METHOD = "fastest", "method"
WRITE = (FASTEST, METHOD)
OP, LAYER = "op", "layer"
BY = (OP, LAYER)


def check_together(
    *, plan: object, pins: object, complete_plan: bool, graph: object, respect_devices: object, costs: object
) -> None:
    """Refuses flags that contradict each other; each argument is what one of them has, false where it is not given.

    A profiled graph has no program to pin ops of, or to profile.

    Raises:
      InputError: names both.
    """
    if plan and pins:
        raise InputError("--plan and --pin are given; a plan pins what it names: edit it, or leave it away")
    asked = {"--pin": pins, "--plan": plan, "--respect_devices": respect_devices, "--costs": costs}
    for flag, value in asked.items():
        if graph and value:
            raise InputError(f"{flag} is given with --graph, which has no program; leave it away")
    if complete_plan and not plan:
        raise InputError("--complete_plan is given without --plan; say which plan to complete")


def check_runs_on(command: str, cluster: str, is_live: bool) -> None:
    """Raises InputError where a command that needs live devices is given a cluster that is only described."""
    if not is_live:
        raise InputError(f"cluster {cluster!r} is only described; {command} on --cluster=local")


def check_not_run_on(graph: object, cluster: str, is_live: bool) -> None:
    """Raises InputError where a profiled graph, which has nothing to run, is given with live devices."""
    if graph and is_live:
        raise InputError(
            f"--cluster={cluster} has live devices, and --graph has nothing to run on them; "
            "give a preset or a .toml file without addresses"
        )
