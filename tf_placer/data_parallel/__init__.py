"""Data parallelism, the usual first use of several devices: the whole step on each, with a part of the batch."""
