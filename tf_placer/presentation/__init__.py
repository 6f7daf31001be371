"""Results in the formats of common tools: Chrome traces, which Perfetto opens too."""
