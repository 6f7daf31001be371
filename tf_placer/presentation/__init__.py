"""Results in the formats of common tools: Chrome traces, which Perfetto opens too."""

from tf_placer.presentation.chrome_trace import chrome_trace
from tf_placer.presentation.chrome_trace import write_timeline

__all__ = ["chrome_trace", "write_timeline"]
