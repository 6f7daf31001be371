"""What is to be placed: ``Problem``, ``Placement``, and how good one can be."""
