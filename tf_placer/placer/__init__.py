"""Networks that put groups on devices."""
