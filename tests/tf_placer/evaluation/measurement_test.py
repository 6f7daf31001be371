"""A Measurement checks itself."""

import numpy as np
import pytest

from tf_placer.evaluation.measurement import Measurement, Status


def test_a_time_exactly_where_the_placement_ran():
    measurement = Measurement(
        np.array([1.0, np.nan]), None, np.array([Status.OK, Status.TIMEOUT], np.int32), ("", "late")
    )
    assert measurement.batch == 2
    for status in ([Status.OK, Status.OK], [Status.TIMEOUT, Status.TIMEOUT]):
        with pytest.raises(ValueError, match="nan exactly where"):
            Measurement(measurement.runtime_s, None, np.array(status, np.int32), ("", "late"))


def test_lengths_must_agree():
    ok = np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="runtime_s has shape"):
        Measurement(np.ones(3), None, ok, ("", ""))
    with pytest.raises(ValueError, match="peak_bytes has shape"):
        Measurement(np.ones(2), np.zeros((3, 4), np.int64), ok, ("", ""))
    with pytest.raises(ValueError, match="stopped_early has shape"):
        Measurement(np.ones(2), None, ok, ("", ""), stopped_early=np.zeros(3, bool))


def test_no_placement_at_all():
    assert Measurement(np.zeros(0), None, np.zeros(0, np.int32), ()).batch == 0
