"""How long something takes: what is planned, how long it took before, and what is left of it."""
