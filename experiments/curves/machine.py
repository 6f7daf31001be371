"""What a page of results says of the machine and the day, in the form that all pages have."""

from __future__ import annotations

import datetime
import os
import platform

import tensorflow as tf


def machine_lines() -> list[str]:
    """``- Machine: ...`` and ``- Date: ...``."""
    cores = len(os.sched_getaffinity(0))
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = len(tf.config.list_physical_devices("GPU"))
    versions = [".".join(version.split(".")[:2]) for version in (tf.__version__, platform.python_version())]
    return [
        f"- Machine: {cores} core{'s' * (cores != 1)}, {gib:.0f} GiB of memory, "
        f"{f'{gpus} GPU' if gpus else 'no GPU'}; TensorFlow {versions[0]}, Python {versions[1]}",
        f"- Date: {datetime.date.today().isoformat()}",
    ]
