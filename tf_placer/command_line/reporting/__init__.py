"""What a command found: the report of a run, told on the terminal, written to files, and its verdict in sentences."""
