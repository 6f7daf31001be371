"""Prints what a program of its own finds, as JSON: its arguments, its environment, and what is imported already."""

import json
import os
import sys

print("a line before")
json.dump(
    {
        "arguments": sys.argv[1:],
        "asked": os.environ.get("TF_PLACER_ASKED"),
        "tensorflow_was_there": "tensorflow" in sys.modules,
    },
    sys.stdout,
)
