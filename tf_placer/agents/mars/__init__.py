"""Mars (Lan et al. 2021): an encoder of the graph that is pre-trained by contrast, and a placer of segments."""
