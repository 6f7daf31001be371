"""The placement problem: ``Problem``, ``Placement``, and lower bounds on a placement's step time."""
