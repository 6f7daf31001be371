"""Binaries that regenerate the published tables and our own evidence."""

import tf_placer.native_log  # noqa: F401 - here "-m" still stands for the program's path, see is_command
