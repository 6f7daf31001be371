"""The batch split over the devices, among the step times of a page."""

from __future__ import annotations

from tf_placer.data_parallel.data_parallel import DataParallel
from tf_placer.data_parallel.sentence import split_batch_name
from tf_placer.report_page.page import StepTime


def split_batch_step_time(split: DataParallel | None) -> tuple[StepTime, ...]:
    """Its row; none where that was not looked at, or cannot be split."""
    if split is None or split.step_s is None:
        return ()
    return (
        StepTime(
            split_batch_name(split),
            split.step_s if split.fits else None,
            split.measured_s,
            peak_bytes=max(split.peak_bytes.values(), default=0),
            note=split.why_not if split.fits else "OUT_OF_MEMORY",
            about="The whole step on every device, each with a part of the batch; gradients are added up.",
        ),
    )
