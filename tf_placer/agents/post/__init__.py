"""Post: cross-entropy minimization with proximal policy optimization (Gao, Chen & Li 2018)."""
