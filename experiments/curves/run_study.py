"""Runs a study whose page is asked for on the command line."""

from __future__ import annotations

import logging
import pathlib
import sys

import tensorflow as tf

from experiments.curves.page import compute
from experiments.curves.study import Study
from tf_placer.errors import InputError

STUDIES = pathlib.Path(__file__).parent
FULL, QUICK = "docs/results", "out/results"


def run_study(study: Study, quick: bool, out: str | None) -> None:
    """Computes the page, and ends the process with 1 where Ctrl-C came before the end.

    Args:
      study: in full.
      quick: whether the small one is wanted.
      out: folder for the results; None is ``FULL``, or ``QUICK``.

    Raises:
      InputError: a name in the study's file is unknown.
    """
    command = f"python -m experiments.{study.name}"
    try:
        study.check_names()
    except InputError as error:
        raise InputError(f"{STUDIES / study.name}.toml: {error}") from None
    if quick:
        study, command = study.quick(), f"{command} --quick"
    # Each search traces a learner of its own, which TensorFlow takes for an oversight.
    tf.get_logger().setLevel(logging.ERROR)
    if status := compute(study, pathlib.Path(out or (QUICK if quick else FULL)), command):
        sys.exit(status)
