"""Planning of a request: its stages, the road from program to plan, and the outcome."""
