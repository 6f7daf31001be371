"""How searches go on over their evaluations: what the pages on learning are made of."""
