"""The simulator, local search in it and list policies: C++ TensorFlow ops and their typed wrappers."""
