"""From a request to a plan: stages, outcome."""
