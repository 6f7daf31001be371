"""REGAL: a genetic algorithm whose random keys are drawn as a graph network says (Paliwal et al. 2020)."""
